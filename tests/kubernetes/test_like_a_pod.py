"""What the manifests say, on real processes: a graph's environment between addresses, and a pod's probes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.kubernetes import graph
from launcher.kubernetes.options import Options
from launcher.kubernetes.subject import Subject, Wanted
from launcher.target.overrides import parse
from launcher.target.resolve import resolve
from tests.kubernetes import manifests
from tests.support.runs import Run

pytestmark = pytest.mark.e2e
START_S = 90.0


def pod_address() -> str:
    """An address of this machine that is not loopback, as a pod has one; skips without."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # No packet is sent: the kernel only chooses the address that one would come from.
            probe.connect(("192.0.2.1", 9))
            address = str(probe.getsockname()[0])
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        pytest.skip("no interface but loopback")
    return address


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def simulated_graph(http_port: int, base_port: int) -> Subject:
    """h200-disagg as a graph with one simulated worker of each role: the same environment rules, no GPU."""
    changes = ("engine.kind=mocker", "workers.prefill.count=1", "workers.decode.count=1")
    ports = (f"network.http_port={http_port}", f"network.base_port={base_port}")
    resolved = resolve("h200-disagg", [parse(text, "test") for text in (*changes, *ports)])
    return Wanted(resolved, "vllm", Options()).spread()


@contextmanager
def running(subject: Subject, folder: Path) -> Iterator[None]:
    """The graph's processes with the graph's environment; files do what the operator's discovery does."""
    own = {
        "DYN_NAMESPACE": subject.target.name,
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(folder / "kv"),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DYN_")}
    children = []
    try:
        for process, _ in graph.templates(subject):
            values = {
                name: value for name, value in graph.environment(process).items() if isinstance(value, str)
            }
            if "system" in process.ports:
                # Pods have an address each; here they share one.
                values["DYN_SYSTEM_PORT"] = str(process.ports["system"])
            with (folder / f"{process.name}.log").open("w") as log:
                children.append(
                    subprocess.Popen(
                        [sys.executable, *process.argv[1:]],
                        env=inherited | values | own,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()


def ask(url: str) -> int:
    """Output tokens of one chat completion."""
    body = {"model": "openai/gpt-oss-120b", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return int(json.load(response)["usage"]["completion_tokens"])


def answered(url: str) -> int | None:
    """Output tokens of the first chat completion that comes back, or None where none does in time."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            return ask(url)
        except (OSError, KeyError):
            time.sleep(1)
    return None


def logs(folder: Path) -> str:
    """The ends of the processes' logs."""
    return "".join(path.read_text()[-2000:] for path in folder.glob("*.log"))


def test_a_graphs_processes_meet_on_the_pods_address(tmp_path: Path) -> None:
    """Without the loopback settings each process listens and advertises where another pod reaches it."""
    address, http_port, base_port = pod_address(), free_port(), 26000
    subject = simulated_graph(http_port, base_port)
    with running(subject, tmp_path):
        assert answered(f"http://{address}:{http_port}") == 8, logs(tmp_path)
        instances = [path.read_text() for path in (tmp_path / "kv" / "v1" / "instances").iterdir()]
        assert len(instances) >= 2
        for instance in instances:
            assert json.loads(instance)["transport"]["tcp"].startswith(f"{address}:")
        workers = [process for process, _ in graph.templates(subject) if "system" in process.ports]
        for process in workers:
            # As the kubelet asks: from outside, at the path of the manifest's probes.
            for path in ("/live", "/health"):
                with urllib.request.urlopen(
                    f"http://{address}:{process.ports['system']}{path}", timeout=10
                ) as answer:
                    assert answer.status == 200


def test_a_pods_probes_are_answered_on_its_address(tmp_path: Path) -> None:
    container = manifests.kind(manifests.documents("sim", "deploy.yaml"), "Pod")["spec"]["containers"][0]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    address = pod_address()
    with Run("sim", state=tmp_path, **env) as run:
        run.ready()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            with urllib.request.urlopen(f"http://{address}:{run.admin_port}{path}", timeout=10) as answer:
                assert answer.status == 200
        monitor = manifests.kind(manifests.documents("sim", "monitor.yaml"), "PodMonitor")
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        with urllib.request.urlopen(
            f"http://{address}:{run.admin_port}{endpoint['path']}", timeout=10
        ) as answer:
            assert answer.status == 200
