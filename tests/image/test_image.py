"""The image, built from the Dockerfile's own instructions on a stand-in for the runtime image, and run.

The stand-in is this machine's root with a Dynamo 1.3.1 environment at /opt/dynamo/venv, as the runtime image has it,
and without the project. What this cannot show: the real images' contents, GPUs, and BuildKit itself.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.download.conftest import SHARDS, repo, vocabulary
from tests.download.standin import COMMIT, MODEL, Hub
from tests.image.builder import Builder, Image, container

ROOT = Path(__file__).resolve().parents[2]
BASE = Path("/opt/dyn/1.3.1")
REGISTRY = "nvcr.io/nvidia/ai-dynamo"
Run = Callable[..., "subprocess.Popen[str]"]

__all__ = ["vocabulary"]  # a fixture of the download's tests

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not BASE.exists() or shutil.which("setpriv") is None,
    reason="needs root and a Dynamo 1.3.1 environment",
)


def base_layer(folder: Path) -> Path:
    """What a runtime image has above a plain system: an environment with Dynamo, and none of our files."""
    (folder / "opt/dynamo").mkdir(parents=True)
    (folder / "workspace").mkdir()
    (folder / "opt/dynamo/venv").symlink_to(BASE)
    # Interpreters of this machine lie below it, and the image's user must reach them.
    (folder / "root").mkdir(mode=0o755)
    # A character device 0/0 is how an overlay says that a name below is gone.
    os.mknod(folder / "work", stat.S_IFCHR, os.makedev(0, 0))
    return folder


def uv_layer(folder: Path) -> Path:
    """The image that has only uv."""
    found = shutil.which("uv")
    if found and Path(found).read_bytes()[:2] == b"#!":
        found = subprocess.run(["pyenv", "which", "uv"], capture_output=True, text=True).stdout.strip()
    if not found:
        pytest.skip("uv is not installed")
    folder.mkdir()
    shutil.copy2(found, folder / "uv")
    return folder


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    """A folder that overlays accept: not below the root that they stack on."""
    folder = Path(tempfile.mkdtemp(prefix="image-", dir="/dev/shm"))
    folder.chmod(0o755)
    probe = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "/bin/sh", "-c", f"mount -t tmpfs tmpfs {folder}"],
        capture_output=True,
    )
    if probe.returncode:
        shutil.rmtree(folder)
        pytest.skip("this container may not mount")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def builder(work: Path) -> Builder:
    env = {
        "PATH": "/opt/dynamo/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/home/dynamo",
        "LANG": "C.UTF-8",
    }
    base = Image((base_layer(work / "base"),), env, user="dynamo", workdir="/workspace")
    images = {
        f"{REGISTRY}/vllm-runtime:1.3.1": base,
        f"{REGISTRY}/tensorrtllm-runtime:9.9.9": base,
        "ghcr.io/astral-sh/uv:0.13.9": Image((uv_layer(work / "uv"),)),
    }
    # A copy, so that an edit meanwhile makes no two images differ.
    context = work / "context"
    for name in ("launcher", "configs", "entrypoints"):
        shutil.copytree(ROOT / name, context / name)
    for name in ("pyproject.toml", "uv.lock", ".dockerignore"):
        shutil.copy2(ROOT / name, context / name)
    cache = Path(
        subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True).stdout.strip() or work
    )
    return Builder(context, work, images, {"/root/.cache/uv": cache})


@pytest.fixture(scope="module")
def image(builder: Builder) -> Image:
    """The finished image."""
    return builder.build((ROOT / "Dockerfile").read_text(), {})


@pytest.fixture
def run(image: Image, work: Path) -> Iterator[Run]:
    """Starts the image as a pod would: unprivileged, read-only root, PID 1 of its own namespace."""
    started: list[subprocess.Popen[str]] = []

    def start(
        *arguments: str,
        entrypoint: str | None = None,
        user: str | None = None,
        binds: Mapping[str, tuple[Path, bool]] | None = None,
        **env: str,
    ) -> subprocess.Popen[str]:
        command = [entrypoint] if entrypoint else image.entrypoint
        scratch = Path(tempfile.mkdtemp(prefix="run-", dir=work))
        argv = container(image, [*command, *(arguments or image.command)], scratch, user=user, binds=binds)
        process = subprocess.Popen(
            argv, env=image.env | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, out + err
    return out


def pid_one(process: subprocess.Popen[str]) -> int:
    """The container's PID 1, by its number here."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


def test_the_build_changes_nothing_of_the_base(image: Image, builder: Builder) -> None:
    assert any("ai-dynamo 1.3.1" in text for text in builder.output)
    for layer in image.layers[:-1]:
        assert not (layer / "opt/dynamo").exists()
        assert not (layer / "opt/dyn").exists()


@pytest.mark.slow
def test_a_changed_base_fails_the_build(builder: Builder, image: Image) -> None:
    text = (ROOT / "Dockerfile").read_text()
    marker = "COPY --from=build /code /opt/launcher\n"
    assert marker in text
    meddle = "RUN rm -r /opt/dyn/1.3.1/lib/python3.11/site-packages/rich-*.dist-info\n"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        builder.build(text.replace(marker, marker + meddle), {})
    assert "< rich==" in caught.value.output + caught.value.stderr


@pytest.mark.slow
def test_the_other_engine_is_an_argument_away_and_the_same_sources_make_the_same_bytes(
    builder: Builder, image: Image
) -> None:
    args = {"ENGINE": "trtllm", "TRTLLM_TAG": "9.9.9", "REVISION": "abc"}
    other = builder.build((ROOT / "Dockerfile").read_text(), args)
    assert "trtllm" in other.labels["org.opencontainers.image.description"]
    assert other.labels["org.opencontainers.image.revision"] == "abc"
    assert contents(image.layers[0] / "opt") == contents(other.layers[0] / "opt")


def contents(folder: Path) -> dict[str, tuple[int, float, bytes]]:
    """Every file with its mode, time and hash or link."""
    found = {}
    for path in folder.rglob("*"):
        seen = path.lstat()
        body = b""
        if path.is_symlink():
            body = str(path.readlink()).encode()
        elif path.is_file():
            body = hashlib.sha256(path.read_bytes()).digest()
        found[str(path.relative_to(folder))] = (seen.st_mode, 0.0 if path.is_dir() else seen.st_mtime, body)
    return found


def test_it_holds_no_second_dynamo_and_stays_small(image: Image) -> None:
    packages = {path.name.partition("-")[0] for path in image.layers[0].rglob("*.dist-info")}
    assert {"pydantic", "huggingface_hub", "rich", "uvloop"} <= packages
    assert not {"ai_dynamo", "transformers", "torch", "numpy"} & packages
    size = sum(path.lstat().st_size for path in image.layers[0].rglob("*") if not path.is_dir())
    assert size < 120e6


def test_without_arguments_it_helps_or_serves_what_the_environment_names(run: Run) -> None:
    process = run()
    out, err = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "launcher COMMAND" in out
    assert "give --target NAME, or set LAUNCHER_TARGET" in err
    process = run(LAUNCHER_TARGET="simm")
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (2, "")
    assert "(set in LAUNCHER_TARGET) - did you mean 'sim'?" in err


@pytest.mark.parametrize("user", ["1000:0", "1000660000:0", "0:0"])
def test_the_children_run_under_the_bases_interpreter(run: Run, user: str) -> None:
    text = output(run("plan", "--target", "h200-agg", "--machine", "H200:8", "--output", "json", user=user))
    plan = json.loads(text)
    assert {process["argv"][0] for process in plan["processes"]} == {"/opt/dynamo/venv/bin/python3"}


def test_exec_in_a_running_pod_finds_the_launcher(run: Run) -> None:
    assert "frontend" in output(run("-c", "launcher plan --target sim", entrypoint="/bin/sh"))


def test_the_model_job(run: Run, tmp_path: Path, vocabulary: Path) -> None:
    hub = Hub()
    hub.repos[MODEL] = repo()
    volume = tmp_path / "cache"
    volume.mkdir()
    volume.chmod(0o777)
    tmp_path.chmod(0o755)
    process = run(
        *("--target", "h200-agg", "--set", "speculative=null", "--vocabulary", "/vocabulary"),
        entrypoint="/opt/launcher/entrypoints/download",
        binds={"/model-cache": (volume, True), "/vocabulary": (vocabulary, False)},
        HF_ENDPOINT=hub.url,
    )
    text = output(process)
    hub.close()
    assert text.count("complete") == 2
    blob = (volume / "hub/models--openai--gpt-oss-120b/snapshots" / COMMIT / SHARDS[0]).resolve()
    assert blob.stat().st_uid == 1000
    assert (volume / "harmony/o200k_base.tiktoken").exists()


def test_pid_one_of_the_model_job_obeys_sigterm(run: Run, tmp_path: Path, vocabulary: Path) -> None:
    hub = Hub()
    hub.repos[MODEL] = repo()
    hub.bytes_per_s = 3e5
    volume = tmp_path / "cache"
    volume.mkdir()
    volume.chmod(0o777)
    process = run(
        *("download", "--target", "h200-agg", "--vocabulary", "/vocabulary"),
        binds={"/model-cache": (volume, True), "/vocabulary": (vocabulary, False)},
        HF_ENDPOINT=hub.url,
    )
    end = time.monotonic() + 60
    while not hub.requests("X-Signature") and time.monotonic() < end:
        time.sleep(0.05)
    one = pid_one(process)
    status = Path(f"/proc/{one}/status").read_text()
    assert "NSpid:\t" in status
    assert status.split("NSpid:")[1].split("\n")[0].split()[-1] == "1"
    assert b"launcher" in Path(f"/proc/{one}/cmdline").read_bytes()
    os.kill(one, signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    hub.close()
    assert process.returncode == 143, out + err
    assert "goes on from here" in out


class _Ready(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()
        self.wfile.write(b"decode: 3 of 4 ready")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (None, 1)])
def test_healthcheck(run: Run, status: int | None, code: int) -> None:
    server = HTTPServer(("127.0.0.1", 0), type("Bound", (_Ready,), {"status": status}))
    port = server.server_port
    if status is None:
        server.server_close()
    else:
        Thread(target=server.handle_request, daemon=True).start()
    process = run(
        "--",
        entrypoint="/opt/launcher/entrypoints/healthcheck",
        LAUNCHER_ADMIN_PORT=str(port),
        LAUNCHER_ADMIN_HOST="0.0.0.0",
    )
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, out + err
    assert err == ""
    if status is not None:
        server.server_close()
        assert "3 of 4 ready" in out


@pytest.mark.slow
@pytest.mark.e2e
def test_a_simulated_deployment_serves_and_drains(run: Run, vocabulary: Path) -> None:
    """The launcher as PID 1, unprivileged on a read-only root, over the base image's own Dynamo 1.3.1."""
    process = run(
        *("serve", "--target", "sim", "--set", "workers.prefill.count=1", "--set", "workers.decode.count=1"),
        binds={"/vocabulary/o200k_base.tiktoken": (vocabulary, False)},
        TIKTOKEN_ENCODINGS_BASE="/vocabulary",
        LAUNCHER_HTTP_PORT="18431",
        LAUNCHER_ADMIN_PORT="18432",
    )
    end = time.monotonic() + 100
    ready = 0
    while ready != 200 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.5)
        ready = answer("/readyz")
    one = pid_one(process)
    os.kill(one, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert ready == 200, out[-3000:] + err[-3000:]
    assert process.returncode == 0, out[-3000:] + err[-3000:]


def answer(path: str) -> int:
    """The status of the admin server, 0 where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", 18432, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
