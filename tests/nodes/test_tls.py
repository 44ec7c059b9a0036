"""An etcd behind TLS, with certificates on both sides and users: what really works, and what each fault is called."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.checks import cluster as rules
from launcher.checks.base import run_checks
from launcher.discovery.etcd import Etcd as Client
from launcher.discovery.etcd import EtcdError
from launcher.engines import etcd_gate
from launcher.findings import Finding
from tests.checks.subjects import machine_for, resolved
from tests.nodes.test_etcd import round_trip
from tests.plan.test_real_parsers import interpreter
from tests.support import nodes
from tests.support.certificates import Authority, Pair, environ
from tests.support.load import Load
from tests.support.nodes import Etcd, Net, Tls, launcher
from tests.support.plans import plan

pytestmark = pytest.mark.e2e
OTHERS = ("1.3.1", "1.4.2")
SMALL = ("--set", "workers.prefill.count=1", "--set", "workers.decode.count=1")
PREFACE = """
import socket
with socket.create_connection(("127.0.0.1", 25999), 5) as sock:
    sock.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    try:
        said = sock.recv(9)
    except ConnectionResetError:
        said = b""
print("SETTINGS" if said[3:4] == bytes([4]) else "nothing")
"""
"""HTTP/2's first words, and whether etcd's come back."""


@pytest.fixture(scope="module")
def place(place: Path) -> Path:
    """With certificates."""
    (place / "pki").mkdir()
    return place


@pytest.fixture(scope="module")
def net(place: Path) -> Iterator[Net]:
    """Two nodes."""
    if reason := nodes.missing():
        pytest.skip(reason)
    with Net() as made:
        made.add("store")
        made.add("a")
        yield made


@pytest.fixture(scope="module")
def authority(place: Path) -> Authority:
    return Authority(place / "pki")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    """Without a common name: etcd's gateway refuses one while there are users."""
    return authority.sign("client")


@pytest.fixture(scope="module")
def etcd(net: Net, authority: Authority, client: Pair, place: Path) -> Iterator[Etcd]:
    """One that lets nobody in without a certificate."""
    own = authority.sign("server", net.nodes["store"])
    made = Etcd(net, "store", place, tls=Tls(own, authority, client=client)).start()
    yield made
    made.stop()


@pytest.fixture
def right(etcd: Etcd, authority: Authority, client: Pair) -> Iterator[dict[str, str]]:
    """All that it takes: certificates, user and password."""
    yield environ(authority, client) | etcd.lock()
    etcd.unlock()


def test_certificates_user_and_password(net: Net, etcd: Etcd, right: dict[str, str], place: Path) -> None:
    asyncio.run(round_trip(Client([etcd.url], right)))
    with launcher(net, etcd, "a", "sim", *SMALL, state=place, **right) as run:
        run.ready()
        gate, worker = run.process_state("etcd-gate"), run.process_state("decode-0")
        assert ("127.0.0.1", gate["ports"]["etcd"]) in net.listeners("a")
        # What Dynamo would take for PEM texts does not reach it.
        inherited = Path(f"/proc/{worker['pid']}/environ").read_text().split("\0")
        assert not [each for each in inherited if each.startswith(("ETCD_AUTH_CA", "ETCD_AUTH_CLIENT"))]
        assert "ETCD_AUTH_USERNAME=root" in inherited
        assert "sesame" not in run.log + run.admin("/status")[1]
        with Load([run.url], run.model, concurrency=4) as load:
            os.kill(gate["pid"], signal.SIGKILL)
            time.sleep(2)
        assert load.failures() == []
        assert run.process_state("etcd-gate")["restarts"] == 1
        # Through the new one it unregisters at its end.
        assert run.process_state("decode-0")["pid"] == worker["pid"]
        assert etcd.keys("v1/instances/sim/backend/generate/")
        assert run.stop() == 0
    assert etcd.keys("v1/") == []


@pytest.mark.slow
@pytest.mark.parametrize("release", ["", *(pytest.param(each, marks=pytest.mark.compat) for each in OTHERS)])
def test_an_etcd_that_forgot_who_signed_in(
    net: Net, etcd: Etcd, right: dict[str, str], place: Path, release: str
) -> None:
    """Tokens are of its memory, and whoever comes back after its restart must sign in anew."""
    options = ("--etcd-lease-s", "10", *(("--python", str(interpreter(release))) if release else ()))
    with launcher(net, etcd, "a", "sim", *SMALL, *options, state=place / f"f{release}", **right) as run:
        run.ready()
        pids = {state["name"]: state["pid"] for state in run.status()["processes"]}
        with Load([run.url], run.model, concurrency=4) as load:
            time.sleep(2)
            etcd.stop()
            time.sleep(1)
            etcd.start()
            # Longer than a lease: nobody lost it.
            time.sleep(15)
        assert load.failures() == []
        assert {state["name"]: state["pid"] for state in run.status()["processes"]} == pids
        assert run.stop() == 0
    assert etcd.keys("v1/") == []


def test_the_launcher_takes_a_renewed_certificate(etcd: Etcd, authority: Authority) -> None:
    own = authority.sign("again", days=-1)

    async def ask() -> None:
        client = Client([etcd.url], environ(authority, own))
        try:
            with pytest.raises(EtcdError):
                await client.range("x/")
            authority.sign("again")
            with contextlib.suppress(EtcdError):
                await client.range("x/")
            assert await client.range("x/") == []
        finally:
            await client.close()

    asyncio.run(ask())


def faults(etcd: Etcd, given: dict[str, str], url: str = "") -> list[Finding]:
    """What the checks of a start say."""
    subject, machine = resolved("sim"), machine_for("sim")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        made = plan("sim", discovery="etcd", etcd_endpoints=url or etcd.url)
    return list(run_checks(rules.CHECKS, subject, made, machine, given))


def only(findings: list[Finding]) -> tuple[str, str, str]:
    """The one finding's code, what it says, and where."""
    (found,) = findings
    return found.code, found.what + " " + found.fix, found.where


def test_wrong_files_are_named(etcd: Etcd, authority: Authority, client: Pair, tmp_path: Path) -> None:
    good = environ(authority, client)
    assert faults(etcd, good) == []
    code, words, where = only(faults(etcd, good | {"ETCD_AUTH_CA": Path(authority.file).read_text()}))
    assert (code, where) == ("etcd-files", "ETCD_AUTH_CA")
    assert "holds a PEM text" in words
    code, words, _ = only(faults(etcd, good | {"ETCD_AUTH_CA": "/nowhere/ca.crt"}))
    assert "/nowhere/ca.crt: no such file" in words
    code, words, where = only(faults(etcd, good | {"ETCD_AUTH_CA": client.key}))
    assert (code, where) == ("etcd-files", "ETCD_AUTH_CA")
    code, words, where = only(faults(etcd, good | {"ETCD_AUTH_CLIENT_KEY": authority.sign("x").key}))
    assert (code, where) == ("etcd-files", "ETCD_AUTH_CLIENT_CERT")
    assert "are no pair" in words
    code, words, where = only(faults(etcd, {**environ(authority), "ETCD_AUTH_CLIENT_KEY": client.key}))
    assert (code, where) == ("etcd-files", "ETCD_AUTH_CLIENT_KEY")


def test_certificates_that_one_side_does_not_accept(
    net: Net, etcd: Etcd, authority: Authority, client: Pair, place: Path
) -> None:
    (place / "other").mkdir()
    other = Authority(place / "other", "other")
    for given in ({}, environ(other, client)):
        code, words, where = only(faults(etcd, given))
        assert (code, where) == ("etcd-tls", "ETCD_AUTH_CA")
        assert "certificate not trusted" in words
    code, words, where = only(faults(etcd, environ(authority)))
    assert (code, where) == ("etcd-tls", "ETCD_AUTH_CLIENT_CERT")
    assert "etcd asks for a certificate" in words
    for pair in (authority.sign("late", days=-1), other.sign("stranger")):
        code, words, where = only(faults(etcd, environ(authority, pair)))
        assert (code, where) == ("etcd-tls", "ETCD_AUTH_CLIENT_CERT")
        assert "valid now" in words
    code, words, where = only(faults(etcd, environ(authority, client), etcd.url.replace("https", "http")))
    assert (code, where) == ("etcd-tls", "--etcd-endpoints")
    assert "https://" in words


@pytest.mark.parametrize(
    ("address", "days", "words", "where"),
    [("", -1, "certificate has expired", "etcd's certificate"), ("10.1.2.3", 2, "mismatch", "--etcd-endpoints")],
)  # fmt: skip
def test_a_server_that_is_not_who_it_should_be(
    net: Net, etcd: Etcd, authority: Authority, client: Pair, address: str, days: int, words: str, where: str
) -> None:
    usual = etcd.tls
    etcd.stop()
    try:
        own = authority.sign(f"server{days}", address or net.nodes["store"], days=days)
        etcd.tls = Tls(own, authority, client=client)
        etcd.launch()
        deadline = time.monotonic() + 10
        while "unreachable" in str(found := faults(etcd, environ(authority, client))):
            assert time.monotonic() < deadline
        code, said, at = only(found)
        assert (code, at) == ("etcd-tls", where)
        assert words in said
    finally:
        etcd.stop()
        etcd.tls = usual
        etcd.start()


def test_users_that_are_not_let_in(etcd: Etcd, right: dict[str, str], authority: Authority) -> None:
    assert faults(etcd, right) == []
    code, words, where = only(faults(etcd, right | {"ETCD_AUTH_PASSWORD": "simsim"}))
    assert (code, where) == ("etcd-refused", "ETCD_AUTH_USERNAME")
    assert "authentication failed" in words
    named = authority.sign("named", subject="/CN=root")
    code, words, where = only(faults(etcd, right | environ(authority, named)))
    assert (code, where) == ("etcd-refused", "ETCD_AUTH_CLIENT_CERT")
    assert "without CN" in words


def test_a_start_with_wrong_credentials_starts_nothing(
    net: Net, etcd: Etcd, right: dict[str, str], place: Path
) -> None:
    wrong = right | {"ETCD_AUTH_CA": ""}
    with launcher(net, etcd, "a", "sim", state=place / "wrong", **wrong) as run:
        assert run.wait(30) == 3
    errors = [line for line in run.lines if "error[" in line]
    assert len(errors) == 1, run.log
    assert "error[etcd-tls]" in errors[0]
    assert not [name for name in net.pids("a") if "mocker" in Path(f"/proc/{name}/cmdline").read_text()]


def test_the_gate_is_this_users_alone_and_takes_a_renewed_certificate(
    net: Net, etcd: Etcd, authority: Authority, place: Path
) -> None:
    own = authority.sign("own", days=-1)
    argv = [sys.executable, "-ES", etcd_gate.__file__, "25999", "https://127.0.0.1:1", etcd.url, "--ca",
            authority.file, "--cert", own.cert, "--key", own.key]  # fmt: skip
    log = place / "gate.log"
    with log.open("wb") as file, subprocess.Popen(net.inside("a", *argv), stderr=file) as gate:
        try:
            ask = [sys.executable, "-ISc", PREFACE]

            def asked(*prefix: str) -> str:
                words = net.inside("a", *prefix, *ask)
                return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

            def until(words: str) -> None:
                deadline = time.monotonic() + 10
                while asked() != words:
                    assert time.monotonic() < deadline, log.read_text()

            until("nothing")
            assert "leads to" in log.read_text()
            authority.sign("own")  # in its place
            until("SETTINGS")
            assert asked("setpriv", "--reuid", "65534", "--clear-groups") == "nothing"
            assert "a process of user 65534 was turned away" in log.read_text()
        finally:
            with contextlib.suppress(OSError):
                gate.terminate()
