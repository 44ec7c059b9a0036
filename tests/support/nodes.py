"""Machines for tests: network namespaces joined by a switch, one of them with a real etcd."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import Authority, Pair
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


@dataclass(frozen=True, slots=True)
class Tls:
    """How an etcd shows itself, and whom it lets in."""

    own: Pair
    authority: Authority
    clients: bool = True
    """Whether clients must show a certificate of the authority."""
    client: Pair | None = None
    """What `etcdctl` shows."""

    @property
    def options(self) -> tuple[str, ...]:
        """Of etcd."""
        found = ("--cert-file", self.own.cert, "--key-file", self.own.key)
        return (
            (*found, "--client-cert-auth", "--trusted-ca-file", self.authority.file)
            if self.clients
            else found
        )

    @property
    def ctl(self) -> tuple[str, ...]:
        """Options of etcdctl."""
        shown = ("--cert", self.client.cert, "--key", self.client.key) if self.client else ()
        return ("--cacert", self.authority.file, *shown)


class Etcd:
    """A real etcd on a node; its data stay over `stop` and `start`."""

    def __init__(
        self,
        net: Net,
        node: str,
        folder: Path,
        *options: str,
        tls: Tls | None = None,
        members: Mapping[str, str] | None = None,
    ) -> None:
        """`members`: node to peer URL of all members of its cluster, where it is not the only one."""
        self._net, self.node, self._folder = net, node, folder
        self._options, self.tls = options, tls
        self._members = members or {node: "http://127.0.0.1:2380"}
        self.process: subprocess.Popen[bytes] | None = None
        self.url = f"{'https' if tls else 'http'}://{net.nodes[node]}:{ETCD_PORT}"
        self.user = ""
        """`NAME:PASSWORD` for etcdctl."""

    def launch(self) -> Etcd:
        """Start it without waiting: a member alone never answers."""
        peer = self._members[self.node]
        self.process = subprocess.Popen(
            self._net.inside(
                self.node, "etcd", "--name", self.node, "--data-dir", str(self._folder / f"etcd-{self.node}"),
                "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer, "--initial-cluster",
                ",".join(f"{name}={url}" for name, url in self._members.items()), "--logger", "zap",
                "--log-level", "error", *(self.tls.options if self.tls else ()), *self._options,
            ),
            stdout=subprocess.DEVNULL, stderr=(self._folder / "etcd.log").open("ab"),
        )  # fmt: skip
        return self

    def start(self) -> Etcd:
        """Start it and wait until it answers."""
        return self.launch().wait()

    def wait(self) -> Etcd:
        """Until it answers."""
        assert self.process is not None
        deadline = time.monotonic() + 15
        while not self.well():
            assert self.process.poll() is None, (self._folder / "etcd.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self

    def well(self) -> bool:
        """Whether it answers, with a leader."""
        return "true" in self.ctl("endpoint", "health", "-w", "json")

    @property
    def alive(self) -> bool:
        """Whether its process is."""
        return self.process is not None and self.process.poll() is None

    def leads(self) -> bool:
        """Whether it is its cluster's leader."""
        try:
            ((status),) = json.loads(self.ctl("endpoint", "status", "-w", "json"))
        except ValueError:
            return False
        return bool(status["Status"]["header"]["member_id"] == status["Status"].get("leader"))

    def stop(self, signum: int = signal.SIGKILL) -> None:
        """End it at once; the data stay."""
        if self.process is not None:
            self.process.send_signal(signum)
            self.process.wait(15)

    def ctl(self, *words: str, **env: str) -> str:
        """Standard output of `etcdctl`."""
        options = (*(self.tls.ctl if self.tls else ()), *(("--user", self.user) if self.user else ()))
        done = subprocess.run(
            self._net.inside(self.node, "etcdctl", "--endpoints", self.url, *options, *words),
            capture_output=True, text=True, check=False, env={**os.environ, "ETCDCTL_API": "3", **env}, timeout=20,
        )  # fmt: skip
        return done.stdout

    def keys(self, prefix: str = "") -> list[str]:
        """All keys below a prefix."""
        return [line for line in self.ctl("get", prefix, "--prefix", "--keys-only").splitlines() if line]

    def lock(self, user: str = "root", password: str = "sesame") -> dict[str, str]:
        """Give it users; returns the variables with which this one is let in."""
        self.ctl("user", "add", f"{user}:{password}")
        self.ctl("user", "grant-role", user, "root")
        self.ctl("auth", "enable")
        self.user = f"{user}:{password}"
        return {"ETCD_AUTH_USERNAME": user, "ETCD_AUTH_PASSWORD": password}

    def unlock(self) -> None:
        """Take them away."""
        self.ctl("auth", "disable")
        self.user = ""


@contextlib.contextmanager
def etcds(net: Net, folder: Path, *names: str, tls: Mapping[str, Tls] | None = None) -> Iterator[list[Etcd]]:
    """One etcd of several members, each on a node."""
    members = {name: f"http://{net.nodes[name]}:{ETCD_PORT + 1}" for name in names}
    made = [Etcd(net, name, folder, members=members, tls=(tls or {}).get(name)).launch() for name in names]
    try:
        for member in made:
            member.wait()
        yield made
    finally:
        for member in made:
            member.stop()


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


def launcher(
    net: Net, etcd: Etcd | Sequence[Etcd], node: str, target: str, *options: str, state: Path, **env: str
) -> Run:
    """A launcher on a node, joined by etcd (or by its members); a context manager."""
    urls = ",".join(each.url for each in ([etcd] if isinstance(etcd, Etcd) else etcd))
    return Run(
        target, "--discovery", "etcd", "--etcd-endpoints", urls, "--node", node, *options,
        state=state / node, host=net.nodes[node], prefix=net.inside(node), **env,
    )  # fmt: skip
