"""What the manifests say, on real processes: a graph's environment between addresses, and a pod's probes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from launcher.kubernetes import graph
from launcher.kubernetes.options import Options
from launcher.kubernetes.subject import Subject, Wanted
from launcher.plan.ports import PortTable
from launcher.target.overrides import parse
from launcher.target.resolve import resolve
from tests.kubernetes import manifests

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
    address, http_port = pod_address(), free_port()
    with closing(PortTable(24000)) as table:
        # Held while the test runs: another launcher on this machine takes another block.
        subject = simulated_graph(http_port, table.take("test", "graph", span=8))
        graph_answers(subject, address, http_port, tmp_path)


def graph_answers(subject: Subject, address: str, http_port: int, tmp_path: Path) -> None:
    """Run the graph, ask it for a completion, and look where its processes listen."""
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


CONTAINED = """\
set -e
mount --make-rprivate /
for path in $SCRATCH; do mount -t tmpfs tmpfs "$path"; done
for path in $(findmnt -rno TARGET | sort -r); do
  case $path in /proc*|/sys*|/dev*|/tmp) ;; *) mount -o remount,bind,ro "$path" 2>/dev/null || true ;; esac
done
if touch "$ROOT/.probe" 2>/dev/null; then rm "$ROOT/.probe"; echo "still writable"; exit 77; fi
exec setpriv --bounding-set -all --inh-caps -all --no-new-privs "$@"
"""
"""What the container runtime does for the pod: a read-only root, empty scratch volumes, no capabilities."""


@pytest.mark.skipif(
    Path(__file__).is_relative_to("/tmp"), reason="the pod's own /tmp would hide this checkout"
)
def test_the_simulated_pod_as_it_is_written(tmp_path: Path) -> None:
    """Its arguments and environment under its restrictions; probes from outside; gone within its grace period."""
    pod = manifests.kind(manifests.documents("sim", "deploy.yaml"), "Pod")
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("setpriv") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("needs unshare and setpriv, and leave to make user namespaces")
    address, http_port, admin_port = pod_address(), free_port(), free_port()
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    env |= {"ROOT": str(manifests.ROOT), "PATH": os.environ["PATH"], "PYTHONPATH": str(manifests.ROOT)}
    env["SCRATCH"] = " ".join(mount["mountPath"] for mount in container["volumeMounts"])
    # The manifest's ports may be taken on a machine that is no pod.
    ports = ["--http-port", str(http_port), "--admin-port", str(admin_port)]
    command = [
        *unshare,
        "bash",
        "-c",
        CONTAINED,
        "bash",
        sys.executable,
        "-m",
        "launcher",
        *container["args"],
        *ports,
    ]
    with (tmp_path / "pod.log").open("w") as log:
        child = subprocess.Popen(command, env=env, cwd=manifests.ROOT, stdout=log, stderr=subprocess.STDOUT)
    try:
        ready = container["readinessProbe"]["httpGet"]["path"]
        deadline = time.monotonic() + START_S
        while status(f"http://{address}:{admin_port}{ready}") != 200 and time.monotonic() < deadline:
            if child.poll() == 77:
                pytest.skip("this kernel leaves the root file system writable")
            assert child.poll() is None, logs(tmp_path)
            time.sleep(0.5)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert status(f"http://{address}:{admin_port}{container[probe]['httpGet']['path']}") == 200, logs(
                tmp_path
            )
        (endpoint,) = manifests.documents("sim", "monitor.yaml")[0]["spec"]["podMetricsEndpoints"]
        assert status(f"http://{address}:{admin_port}{endpoint['path']}") == 200
        assert ask(f"http://{address}:{http_port}") == 8
        child.terminate()
        assert child.wait(pod["spec"]["terminationGracePeriodSeconds"]) == 0, logs(tmp_path)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def status(url: str) -> int:
    """The answer's status, 0 without one."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
