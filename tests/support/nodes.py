"""Machines for tests: network namespaces joined by a switch, one of them with a real etcd."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.runs import Run

ETCD_PORT = 2379
NEEDS = ("ip", "etcd", "etcdctl")
"""Programs that these tests need (Debian: iproute2, etcd-server, etcd-client)."""


def missing() -> str:
    """Why no nodes can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [name for name in NEEDS if shutil.which(name) is None]
    if lacking:
        return f"needs {' and '.join(lacking)} (apt-get install etcd-server etcd-client iproute2)"
    done = subprocess.run(["ip", "netns", "add", f"lt{os.getpid()}"], capture_output=True, text=True)
    if done.returncode:
        return f"no network namespaces here: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", f"lt{os.getpid()}"], check=True)
    return ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Net:
    """A switch (a bridge in a namespace of its own), the nodes on it, and the test at .254. A context manager."""

    def __init__(self) -> None:
        self._tag = f"lt{os.getpid() % 100000}"
        self._switch = f"{self._tag}sw"
        self._subnet = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"
        """Of this test process, so that several may run."""
        self.nodes: dict[str, str] = {}
        """Node to its address."""

    def __enter__(self) -> Net:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "name", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        _ip("link", "add", "name", self._tag, "type", "veth", "peer", "name", "p0", "netns", self._switch)
        _ip("-n", self._switch, "link", "set", "p0", "master", "br0", "up")
        _ip("address", "add", f"{self._subnet}.254/24", "dev", self._tag)
        _ip("link", "set", self._tag, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            for pid in self.pids(node):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.space(node)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._tag], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self._switch], check=False, capture_output=True)

    def space(self, node: str) -> str:
        """The node's network namespace."""
        return f"{self._tag}{node}"

    def add(self, node: str) -> str:
        """One more node; returns its address."""
        address = f"{self._subnet}.{len(self.nodes) + 1}"
        self.nodes[node] = address
        space, port = self.space(node), f"p{len(self.nodes)}"
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        _ip(
            "link",
            "add",
            "name",
            "eth0",
            "netns",
            space,
            "type",
            "veth",
            "peer",
            "name",
            port,
            "netns",
            self._switch,
        )
        _ip("-n", self._switch, "link", "set", port, "master", "br0", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        return address

    def cut(self, node: str) -> None:
        """Pull the node's cable: nothing is refused, nothing arrives."""
        _ip("-n", self._switch, "link", "set", self._port(node), "nomaster")

    def mend(self, node: str) -> None:
        """Put it back."""
        _ip("-n", self._switch, "link", "set", self._port(node), "master", "br0")

    def _port(self, node: str) -> str:
        return f"p{list(self.nodes).index(node) + 1}"

    def inside(self, node: str, *argv: str) -> list[str]:
        """The command line that runs `argv` on the node."""
        return ["ip", "netns", "exec", self.space(node), *argv]

    def pids(self, node: str) -> list[int]:
        """Every process of the node."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.space(node)], capture_output=True, text=True, check=False
        )
        return [int(word) for word in done.stdout.split()]

    def kill(self, node: str, *, cut: bool = True) -> int:
        """SIGKILL to every process of the node at once, as when its power fails. Returns how many there were.

        The link goes first (`cut`): a kernel that lives on would tell the peers that the connections are closed.
        """
        if cut:
            self.cut(node)
        pids = self.pids(node)
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def listeners(self, node: str) -> list[tuple[str, int]]:
        """Address and port of every listening TCP socket of the node."""
        done = subprocess.run(
            self.inside(node, "cat", "/proc/net/tcp", "/proc/net/tcp6"),
            capture_output=True,
            text=True,
            check=True,
        )
        found = []
        for line in done.stdout.splitlines():
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A":
                address, _, port = fields[1].partition(":")
                words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
                last = words[-1].to_bytes(4, "little")
                found.append((".".join(map(str, last)), int(port, 16)))
        return sorted(found)


class Etcd:
    """A real etcd on a node; its data stay over `stop` and `start`."""

    def __init__(self, net: Net, node: str, folder: Path, *options: str, scheme: str = "http") -> None:
        self._net, self._node, self._folder = net, node, folder
        self._options, self._scheme = options, scheme
        self.process: subprocess.Popen[bytes] | None = None
        self.url = f"{scheme}://{net.nodes[node]}:{ETCD_PORT}"

    def start(self) -> Etcd:
        """Start it and wait until it answers."""
        peer = "http://127.0.0.1:2380"
        self.process = subprocess.Popen(
            self._net.inside(
                self._node, "etcd", "--name", "one", "--data-dir", str(self._folder / "etcd"),
                "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", "--logger", "zap",
                "--log-level", "error", *self._options,
            ),
            stdout=subprocess.DEVNULL, stderr=(self._folder / "etcd.log").open("ab"),
        )  # fmt: skip
        deadline = time.monotonic() + 15
        while self._scheme == "http" and "true" not in self.ctl("endpoint", "health", "-w", "json"):
            assert self.process.poll() is None, (self._folder / "etcd.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self

    def stop(self, signum: int = signal.SIGKILL) -> None:
        """End it at once; the data stay."""
        if self.process is not None:
            self.process.send_signal(signum)
            self.process.wait(15)

    def ctl(self, *words: str, **env: str) -> str:
        """Standard output of `etcdctl`, or of curl where there is none."""
        done = subprocess.run(
            self._net.inside(self._node, "etcdctl", "--endpoints", self.url, *words),
            capture_output=True, text=True, check=False, env={**os.environ, "ETCDCTL_API": "3", **env}, timeout=20,
        )  # fmt: skip
        return done.stdout

    def keys(self, prefix: str = "") -> list[str]:
        """All keys below a prefix."""
        return [line for line in self.ctl("get", prefix, "--prefix", "--keys-only").splitlines() if line]


@contextlib.contextmanager
def cluster(folder: Path, *names: str) -> Iterator[tuple[Net, Etcd]]:
    """Nodes of these names and one more, `store`, with etcd."""
    with Net() as net:
        net.add("store")
        for name in names:
            net.add(name)
        etcd = Etcd(net, "store", folder).start()
        try:
            yield net, etcd
        finally:
            etcd.stop()


def dump(etcd: Etcd, prefix: str = "") -> dict[str, object]:
    """Every key and value, for looking at by hand."""
    lines = etcd.ctl("get", prefix, "--prefix").splitlines()
    found: dict[str, object] = {}
    for key, value in zip(lines[::2], lines[1::2], strict=False):
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def launcher(net: Net, etcd: Etcd, node: str, target: str, *options: str, state: Path, **env: str) -> Run:
    """A launcher on a node, joined by etcd; a context manager."""
    return Run(
        target, "--discovery", "etcd", "--etcd-endpoints", etcd.url, "--node", node, *options,
        state=state / node, host=net.nodes[node], prefix=net.inside(node), **env,
    )  # fmt: skip
