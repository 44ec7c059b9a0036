"""Runs the Dockerfile's own instructions without a container engine: overlays and namespaces, as root.

Not a builder for use: it knows the instructions that our Dockerfile has and refuses all others. An image is a list of
overlay layers above this machine's root; images that would come from a registry are folders given by the test.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

PASSED = re.compile(r"^(UV_|PIP_|SSL_|REQUESTS_|HTTPS?_PROXY|https?_proxy|NO_PROXY|no_proxy)")
"""How this machine reaches its package registry: a real builder has its own way."""


@dataclass
class Image:
    """An image or a stage in the making."""

    layers: tuple[Path, ...]
    """Highest first."""
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    workdir: str = "/"
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    healthcheck: str = ""

    def child(self, layer: Path) -> Image:
        layer.mkdir(parents=True)
        return Image(
            (layer, *self.layers),
            dict(self.env),
            {},
            self.user,
            self.workdir,
            list(self.shell),
            [],
            [],
            dict(self.labels),
        )


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, arguments) with continued lines joined and comments gone."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    split = (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    return [(word.upper(), rest.strip()) for word, _, rest in split]


class Builder:
    """Builds one Dockerfile in a work folder, which must be on a file system that overlays accept."""

    def __init__(
        self, context: Path, work: Path, images: Mapping[str, Image], caches: Mapping[str, Path]
    ) -> None:
        self._context, self._work = context, work
        self._images = dict(images)
        self._caches = caches
        self._globals: dict[str, str] = {}
        self._ignore = (context / ".dockerignore").read_text().splitlines()
        self._number = 0
        self.output: list[str] = []

    def build(self, text: str, args: Mapping[str, str]) -> Image:
        """The last stage. Raises subprocess.CalledProcessError where a RUN fails."""
        current: Image | None = None
        for word, rest in instructions(text):
            if word == "FROM":
                current = self._from(rest)
            elif word == "ARG" and current is None:
                name, _, value = rest.partition("=")
                self._globals[name] = args.get(name, value)
            else:
                assert current is not None
                self._step(current, word, rest, args)
        assert current is not None
        return current

    def _from(self, rest: str) -> Image:
        name, _, stage = _expand(rest, self._globals).partition(" AS ")
        # A stage that nobody uses is not built: a registry image that the test does not have stays unknown.
        if name not in self._images:
            image = Image(())
        else:
            self._number += 1
            image = self._images[name].child(self._work / f"layer-{self._number}")
        self._images[stage] = image
        return image

    def _step(self, image: Image, word: str, rest: str, args: Mapping[str, str]) -> None:
        values = image.env | image.args
        if word == "ARG":
            name, _, value = rest.partition("=")
            image.args[name] = args.get(name, self._globals.get(name, value))
        elif word in ("ENV", "LABEL"):
            into = image.env if word == "ENV" else image.labels
            for pair in shlex.split(_expand(rest, values)):
                name, _, value = pair.partition("=")
                into[name] = value
        elif word == "USER":
            image.user = rest
        elif word == "WORKDIR":
            image.workdir = rest
            self.run(image, ["mkdir", "-p", rest], user="0", workdir="/")
        elif word == "SHELL":
            image.shell = json.loads(rest)
        elif word == "ENTRYPOINT":
            image.entrypoint, image.command = json.loads(rest), []
        elif word == "CMD":
            image.command = json.loads(rest)
        elif word == "HEALTHCHECK":
            image.healthcheck = rest
        elif word == "COPY":
            self._copy(image, rest)
        elif word == "RUN":
            self._run(image, rest)
        else:
            assert word == "EXPOSE", word

    def _copy(self, image: Image, rest: str) -> None:
        source, target = rest.split()[-2:]
        origin = re.match(r"--from=(\S+)", rest)
        target = f"{image.workdir}/{target}" if not target.startswith("/") else target
        if origin:
            self.run(
                image,
                [
                    "/bin/sh",
                    "-c",
                    f"mkdir -p {target}; cp -aT /run/from{source} {target}"
                    if source != "/uv"
                    else f"cp -a /run/from/uv {target}",
                ],
                user="0",
                workdir="/",
                binds={"/run/from": self._merged(self._images[origin[1]])},
            )
            return
        into = image.layers[0] / target.lstrip("/")
        shutil.copytree(
            self._context / source,
            into,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=lambda folder, names: [name for name in names if self._ignored(Path(folder) / name)],
        )

    def _ignored(self, path: Path) -> bool:
        """By the `**/` patterns; what the `*` of .dockerignore hides would not be named by a COPY."""
        name = str(path.relative_to(self._context))
        patterns = [line.removeprefix("**/") for line in self._ignore if line.startswith("**/")]
        allowed = [line[1:] for line in self._ignore if line.startswith("!")]
        assert any(name == entry or name.startswith(entry + "/") for entry in allowed), (
            f"{name} is not in the context"
        )
        return any(fnmatch(path.name, pattern) for pattern in patterns)

    def _run(self, image: Image, rest: str) -> None:
        binds: dict[str, Path] = {}
        while rest.startswith("--mount="):
            option, _, rest = rest.partition(" ")
            rest = rest.lstrip()
            values = dict(pair.split("=", 1) for pair in option.removeprefix("--mount=").split(","))
            if values["type"] == "cache":
                binds[values["target"]] = self._caches[values["target"]]
            else:
                root = self._merged(self._images[values["from"]]) if "from" in values else self._context
                binds[values["target"]] = root / values["source"].lstrip("/")
        passed = {name: value for name, value in os.environ.items() if PASSED.match(name)}
        self.run(image, [*image.shell, rest], env=image.env | image.args | passed, binds=binds)

    def _merged(self, image: Image) -> Path:
        """The files that an image's own layers hold, as one folder; the machine's root below is left out."""
        if len(image.layers) == 1:
            return image.layers[0]
        self._number += 1
        folder = self._work / f"merged-{self._number}"
        folder.mkdir()
        for layer in reversed(image.layers):
            subprocess.run(["cp", "-a", f"{layer}/.", folder], check=True)
        return folder

    def run(
        self,
        image: Image,
        command: Sequence[str],
        *,
        user: str | None = None,
        workdir: str | None = None,
        env: Mapping[str, str] | None = None,
        binds: Mapping[str, Path] | None = None,
    ) -> None:
        """A build step, which writes to the image's highest layer."""
        self._number += 1
        scratch = self._work / f"run-{self._number}"
        argv = container(
            image,
            command,
            scratch,
            user=user,
            workdir=workdir,
            writable=True,
            binds={target: (source, False) for target, source in (binds or {}).items()},
        )
        done = subprocess.run(
            argv, env=dict(image.env if env is None else env), capture_output=True, text=True
        )
        self.output.append(done.stdout + done.stderr)
        if done.returncode:
            error = subprocess.CalledProcessError(done.returncode, list(command), done.stdout, done.stderr)
            error.add_note(self.output[-1][-2000:])
            raise error
        # What mounts needed is no part of the layer.
        for target in binds or ():
            stub = image.layers[0] / target.lstrip("/")
            while stub != image.layers[0] and stub.exists():
                if stub.is_dir() and any(stub.iterdir()):
                    break
                stub.rmdir() if stub.is_dir() else stub.unlink()
                stub = stub.parent


def container(
    image: Image,
    command: Sequence[str],
    scratch: Path,
    *,
    user: str | None = None,
    workdir: str | None = None,
    writable: bool = False,
    binds: Mapping[str, tuple[Path, bool]] | None = None,
) -> list[str]:
    """The argv that runs a command in an image, as PID 1 of a namespace of its own.

    `binds` maps a path inside to a path here and whether it is mounted writable-for-all as a volume is.
    """
    for name in ("work", "upper", "root"):
        (scratch / name).mkdir(parents=True)
    upper, *lower = image.layers if writable else (scratch / "upper", *image.layers)
    lines = [
        "set -eu",
        f"R={scratch}/root",
        f"LOWER={':'.join(map(str, lower))}:/",
        f"mount -t overlay overlay -o lowerdir=$LOWER,upperdir={upper},workdir={scratch}/work $R",
        "mkdir -p $R/run $R/tmp",
        "mount -t proc proc $R/proc; mount --rbind /dev $R/dev",
        "mount -t tmpfs -o mode=1777 tmpfs $R/tmp",
    ]
    for target, (source, _) in (binds or {}).items():
        make = (
            f"mkdir -p $R{target}" if source.is_dir() else f"mkdir -p $R{Path(target).parent}; : > $R{target}"
        )
        lines += [make, f"mount --bind {source} $R{target}"]
    if not writable:
        lines.append("mount -o remount,ro $R")
    number, _, group = (user or image.user).partition(":")
    drop = [] if number == "0" else ["--bounding-set=-all", "--no-new-privs"]
    inner = shlex.join(
        [
            *("setpriv", f"--reuid={number}", f"--regid={group or 0}", "--clear-groups", *drop),
            *("/bin/sh", "-c", 'cd "$0" && exec "$@"', workdir or image.workdir, *command),
        ]
    )
    # By their paths: the environment, PATH with it, is already the image's.
    lines.append(f"exec {shutil.which('chroot')} $R {inner}")
    outer = [
        shutil.which("unshare") or "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
    ]
    return [*outer, "/bin/sh", "-c", "\n".join(lines)]


def _expand(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: values.get(found[1], ""), text)
