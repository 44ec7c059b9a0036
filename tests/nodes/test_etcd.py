"""The client against the real etcd: leases, passwords, certificates."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.discovery.etcd import Etcd as Client
from launcher.discovery.etcd import EtcdError
from tests.support import nodes
from tests.support.nodes import Etcd, Net
from tests.support.runs import Run

pytestmark = pytest.mark.e2e
Cluster = tuple[Net, Etcd]


async def round_trip(client: Client) -> None:
    """Everything that a launcher does with etcd."""
    try:
        lease = await client.grant(5)
        await client.put("x/one", b'{"a": 1}', lease)
        await client.put("x/two", b"no json", lease)
        found = {pair.key: pair for pair in await client.range("x/")}
        assert found["x/one"].json() == {"a": 1}
        assert found["x/two"].json() == {}
        assert {pair.lease for pair in found.values()} == {lease}
        assert await client.keep_alive(lease)
        assert await client.revoke(lease)
        assert await client.range("x/") == []
        assert not await client.keep_alive(lease)
        assert not await client.revoke(lease)
    finally:
        await client.close()


def test_keys_go_with_their_lease(cluster: Cluster) -> None:
    _, etcd = cluster
    asyncio.run(round_trip(Client([etcd.url], {})))


def test_an_endpoint_that_answers_is_enough(cluster: Cluster) -> None:
    net, etcd = cluster
    asyncio.run(round_trip(Client([f"http://{net.nodes['a']}:1", etcd.url], {})))


def test_nobody_answers(cluster: Cluster) -> None:
    net, _ = cluster

    async def ask() -> None:
        client = Client([f"http://{net.nodes['a']}:1"], {})
        try:
            await client.range("x/")
        finally:
            await client.close()

    with pytest.raises(EtcdError, match="Connect call failed"):
        asyncio.run(ask())


@pytest.fixture
def locked(cluster: Cluster) -> Iterator[tuple[Net, Etcd, dict[str, str]]]:
    """The same etcd with users."""
    net, etcd = cluster
    etcd.ctl("user", "add", "root:sesame")
    etcd.ctl("user", "grant-role", "root", "root")
    etcd.ctl("auth", "enable")
    yield net, etcd, {"ETCD_AUTH_USERNAME": "root", "ETCD_AUTH_PASSWORD": "sesame"}
    etcd.ctl("--user", "root:sesame", "auth", "disable")


def test_a_password(locked: tuple[Net, Etcd, dict[str, str]], place: Path) -> None:
    net, etcd, right = locked
    asyncio.run(round_trip(Client([etcd.url], right)))
    wrong = {**right, "ETCD_AUTH_PASSWORD": "simsim"}
    with nodes.launcher(net, etcd, "a", "sim", state=place / "wrong", **wrong) as run:
        assert run.wait(30) == 3
        assert "etcd refuses the user root" in run.log
        assert "authentication failed" in run.log
    with nodes.launcher(net, etcd, "a", "sim", state=place / "right", **right) as run:
        run.ready()
        assert run.chat("Hello")["usage"]["completion_tokens"] == 16
        assert "sesame" not in run.log
        assert "sesame" not in run.admin("/status")[1]
        assert run.stop() == 0


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def test_certificates_on_both_sides(cluster: Cluster, tmp_path: Path, place: Path) -> None:
    net, _ = cluster
    address = net.nodes["c"]
    openssl(tmp_path, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days",
            "2", "-subj", "/CN=test ca", "-addext", "keyUsage=critical,keyCertSign", "-addext",
            "basicConstraints=critical,CA:TRUE")  # fmt: skip
    for name in ("server", "client"):
        openssl(tmp_path, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")  # fmt: skip
        (tmp_path / f"{name}.ext").write_text(
            f"subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n"
        )
        openssl(tmp_path, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.crt", "-days", "2", "-extfile", f"{name}.ext")  # fmt: skip
    folder = place / "tls"
    folder.mkdir()
    secure = Etcd(
        net, "c", folder, "--cert-file", str(tmp_path / "server.crt"), "--key-file", str(tmp_path / "server.key"),
        "--client-cert-auth", "--trusted-ca-file", str(tmp_path / "ca.crt"), scheme="https",
    ).start()  # fmt: skip
    environ = {
        "ETCD_AUTH_CA": str(tmp_path / "ca.crt"),
        "ETCD_AUTH_CLIENT_CERT": str(tmp_path / "client.crt"),
        "ETCD_AUTH_CLIENT_KEY": str(tmp_path / "client.key"),
    }
    try:
        with nodes.launcher(net, secure, "a", "sim", state=place / "untrusted") as run:
            assert run.wait(30) == 3
            assert "certificate not trusted" in run.log
        asyncio.run(round_trip(Client([secure.url], environ)))
        # Dynamo's own client is another matter (1.3.1 to 1.6.1): the launcher says so before it is started.
        with nodes.launcher(
            net, secure, "a", "sim", "--set", "deadlines.start_s=3", state=place / "tls-run", **environ
        ) as run:
            assert run.wait(60) == 4
            assert "warning[etcd-tls]" in run.log
            assert "Unable to connect to etcd server" in run.log
    finally:
        secure.stop()


def test_a_run_that_names_another_node_the_same_is_told(cluster: Cluster, place: Path) -> None:
    net, etcd = cluster
    with nodes.launcher(net, etcd, "a", "sim", state=place / "one") as first:
        first.ready()
        with Run(
            "sim", "--discovery", "etcd", "--etcd-endpoints", etcd.url, "--node", "a", "--set", "kv.block_size=32",
            state=place / "two", host=net.nodes["b"], prefix=net.inside("b"),
        ) as second:  # fmt: skip
            # Its proof of KV routing meets workers of another block size: it never says ready.
            assert second.wait(90) == 4
            assert "it is of another deployment" in second.log
            assert "the same name" in second.log
            assert "block_size 64 (here 32)" in second.log
