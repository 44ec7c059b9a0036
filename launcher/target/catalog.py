"""Where targets are found, and how a target's layers become one document."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from launcher.findings import Finding, LauncherError, did_you_mean
from launcher.target import document
from launcher.target.document import Origins

PACKAGE = Path(__file__).resolve().parent.parent
MAX_LAYERS = 16


def config_dir() -> Path:
    """The folder with `targets/`: `configs` beside the package in a checkout, inside it in a wheel."""
    beside = PACKAGE.parent / "configs"
    return beside if (beside / "targets").is_dir() else PACKAGE / "_configs"


def names(folder: Path | None = None) -> list[str]:
    """The names of all targets, sorted."""
    return sorted(path.stem for path in ((folder or config_dir()) / "targets").glob("*.yaml"))


def shown(path: Path) -> str:
    """The path as a person would write it: relative to the checkout or the working folder where it is inside."""
    for root in (Path.cwd(), config_dir().parent):
        try:
            return str(path.relative_to(root))
        except ValueError:
            continue
    return str(path)


def find(name: str, folder: Path | None = None) -> Path:
    """The file of the target `name`, or of a path to a YAML file. Raises LauncherError where there is none."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not os.path.lexists(path):
            raise LauncherError(
                Finding(code="target-unknown", what=f"no target file at {name!r}", where="--target")
            )
        return path.absolute()
    known = names(folder)
    if name not in known:
        raise LauncherError(
            Finding(
                code="target-unknown",
                what=f"there is no target {name!r}",
                where="--target",
                fix=did_you_mean(name, known),
            )
        )
    return (folder or config_dir()) / "targets" / f"{name}.yaml"


def load(name: str, folder: Path | None = None) -> tuple[dict[str, Any], Origins]:
    """The target's layers merged into one document, with the origin of each value.

    A target's `extends` names the layers under it, lowest first, each a file of `base/` beside the targets.
    """
    path = find(name, folder)
    base = (folder or config_dir()) / "targets" / "base"
    merged, origins = _layers(path, base, ())
    if "/" not in name and not name.endswith((".yaml", ".yml")):
        merged.setdefault("name", name)
    else:
        merged.setdefault("name", path.stem)
    origins.setdefault(("name",), shown(path))
    # Of what stands nowhere, such as a key that is missing.
    origins.setdefault((), shown(path))
    return merged, origins


def _layers(path: Path, base: Path, above: tuple[Path, ...]) -> tuple[dict[str, Any], Origins]:
    where = shown(path)
    if path in above or len(above) > MAX_LAYERS:
        chain = " -> ".join(item.stem for item in (*above, path))
        raise LauncherError(
            Finding(code="target-file", what=f"`extends` goes in a circle: {chain}", where=where)
        )
    own, own_origins = document.parse(document.read_text(path, where), where)
    if not own and not above:
        raise LauncherError(
            Finding(
                code="target-file",
                what=f"{where} is empty",
                where=where,
                fix="`extends: [gpt-oss-120b]` and what makes it different; configs/targets has examples",
            )
        )
    layers = own.pop("extends", [])
    layers_where = own_origins.pop(("extends",), where)
    for known in [known for known in own_origins if known[:1] == ("extends",)]:
        del own_origins[known]
    if isinstance(layers, str):
        layers = [layers]
    if not isinstance(layers, list) or not all(isinstance(layer, str) for layer in layers):
        raise LauncherError(
            Finding(code="target-file", what="`extends` is not a list of layer names", where=layers_where)
        )
    merged: dict[str, Any] = {}
    origins: Origins = {}
    available = sorted(file.stem for file in base.glob("*.yaml"))
    for layer in layers:
        if layer not in available:
            target = (base.parent / f"{layer}.yaml").is_file()
            raise LauncherError(
                Finding(
                    code="target-file",
                    what=f"`extends` names the target {layer!r}: only layers of targets/base can be extended"
                    if target
                    else f"`extends` names the unknown layer {layer!r}",
                    where=layers_where,
                    fix="one of: " + ", ".join(available) if target else did_you_mean(layer, available),
                )
            )
        below, below_origins = _layers(base / f"{layer}.yaml", base, (*above, path))
        merged, origins = document.merge(merged, below, origins, below_origins)
    result, origins = document.merge(merged, own, origins, own_origins)
    return result, origins
