"""Write a target's Kubernetes manifests. Talks to no cluster and needs no GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launcher import outputs
from launcher.cli import common
from launcher.findings import Exit, Finding, LauncherError
from launcher.kubernetes.options import Options
from launcher.kubernetes.render import KINDS, render, render_all
from launcher.kubernetes.subject import Wanted
from launcher.settings import Settings
from launcher.target import catalog
from launcher.target.resolve import resolve


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    common.add_target_options(parser, hidden=(*common.ONLY_SERVING, "--log-format"))
    common.add_machine_option(parser)
    group = parser.add_argument_group("what to write")
    listing = "; ".join(f"{name}: {kind.help}" for name, kind in KINDS.items())
    group.add_argument(
        "--kind", choices=tuple(KINDS), help=f"{listing} (default: pod; with --write, all of them)"
    )
    group.add_argument("--all", action="store_true", help="every kind of every target, with --write")
    group.add_argument("--write", metavar="DIR", help="write DIR/TARGET/*.yaml instead of to standard output")
    group = parser.add_argument_group("for the cluster")
    defaults = Options()
    group.add_argument(
        "--name", help="name of the Service and of all that belongs to it; the target's if not given"
    )
    group.add_argument("--namespace", help="left to `kubectl -n` if not given")
    group.add_argument("--image", help="the launcher's image, as you pushed it")
    group.add_argument(
        "--runtime-image", metavar="IMAGE", help="dgd: the engine's image (default: the target's)"
    )
    group.add_argument(
        "--secret", default=defaults.secret, help="secret with HF_TOKEN (default: %(default)s)"
    )
    group.add_argument(
        "--storage-class", metavar="CLASS", help="with ReadWriteMany; the cluster's default if not given"
    )
    group.add_argument(
        "--storage", default=defaults.storage, help="size of the model cache (default: %(default)s)"
    )
    group.add_argument(
        "--claim", default=defaults.claim, help="claim of the model cache (default: %(default)s)"
    )
    group.add_argument("--url", help="what the benchmark asks (default: the deployment's Service)")


def run(args: argparse.Namespace) -> int:
    """Print one manifest, or write many."""
    options = Options(
        name=args.name,
        namespace=args.namespace,
        image=args.image,
        runtime_image=args.runtime_image,
        secret=args.secret,
        storage_class=args.storage_class,
        storage=args.storage,
        claim=args.claim,
        url=args.url,
    )
    root = common.as_path(args.write, "--write") if args.write is not None else None
    if args.all:
        return _write_all(args, root, options)
    wanted = _wanted(common.load(args), options)
    if root is None:
        sys.stdout.write(render(wanted, args.kind or "pod"))
    elif args.kind is None:
        _write(root, wanted, dict(render_all(wanted)))
    else:
        file = KINDS[args.kind].file or f"{args.kind}.yaml"
        _write(root, wanted, {file: render(wanted, args.kind)})
    return Exit.OK


def _write_all(args: argparse.Namespace, root: Path | None, options: Options) -> int:
    single = ("target", "set", "engine", "machine", "name", "url", "kind", "config_dir")
    given = [name.replace("_", "-") for name in single if getattr(args, name, None)]
    if root is None or given:
        raise LauncherError(
            Finding(
                code="command-line",
                what="--all goes with --write DIR" + (f", and not with --{given[0]}" if given else ""),
                where="the command line",
                fix="launcher render --all --write configs/deploy",
            )
        )
    for name in catalog.names():
        # The targets as they are: nothing of this shell's environment gets in.
        resolved = resolve(name)
        wanted = Wanted(resolved, resolved.target.engine.kind, options)
        _write(root, wanted, dict(render_all(wanted)))
    return Exit.OK


def _write(root: Path, wanted: Wanted, files: dict[str, str]) -> None:
    folder = root / wanted.resolved.target.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise outputs.cannot_write(Path(error.filename or folder), error, "--write") from None
    print(f"{folder}: {', '.join(files)}", file=sys.stderr)


def _wanted(loaded: common.Loaded, options: Options) -> Wanted:
    settings = loaded.settings
    name = settings.target or ""
    if name not in catalog.names() or settings.config_dir is not None:
        raise LauncherError(
            Finding(
                code="render-target",
                what=f"the image does not have the target {name!r}",
                where="--target" if settings.config_dir is None else "--config-dir",
                why="the launcher in the pod reads the targets of its own image",
                fix="a target of configs/targets; change one with --set, or add a file there and build the image",
            )
        )
    cluster = [word for text in settings.set if _of_pod(text) for word in ("--set", text)]
    return Wanted(
        resolved=loaded.resolved,
        native=loaded.native,
        options=options,
        passed=tuple(_passed(settings)),
        cluster=tuple(cluster),
        machine=settings.machine,
        admin_host=settings.admin_host or "0.0.0.0",
    )


def _of_pod(assignment: str) -> bool:
    """Whether a `--set` is about the manifests only."""
    return assignment.strip().startswith("pod.")


def _passed(settings: Settings) -> list[str]:
    """The flags with which the launcher in the pod makes the same plan."""
    words: list[str] = []
    if settings.engine != "auto":
        words += ["--engine", settings.engine]
    for flag, value in (
        ("--http-host", settings.http_host),
        ("--http-port", settings.http_port),
        ("--admin-port", settings.admin_port),
        ("--base-port", settings.base_port),
    ):
        if value is not None:
            words += [flag, str(value)]
    if settings.require_fast_lane:
        words.append("--require-fast-lane")
    for text in settings.set:
        if not _of_pod(text):
            words += ["--set", text]
    return words
