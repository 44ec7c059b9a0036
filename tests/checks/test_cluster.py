"""etcd and Kubernetes discovery, asked over real sockets; each refusal in the words that it really comes with."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from launcher.checks import cluster, etcd, neighbours, reach
from launcher.checks.base import run_checks
from launcher.findings import Finding, Severity
from launcher.plan.build import Planner
from launcher.plan.join import Join
from tests.checks.subjects import codes, machine_for, plan_of, resolved
from tests.support.plans import planned

BACKEND = ("engine.env.DYN_DISCOVERY_BACKEND=", "frontend.env.DYN_DISCOVERY_BACKEND=")


@contextlib.contextmanager
def serving(answers: Mapping[str, tuple[int, object]]) -> Iterator[int]:
    """An HTTP server on loopback; path prefix to status and JSON body. Gives its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = next(
                (answer for path, answer in answers.items() if self.path.startswith(path)), (404, {})
            )
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def closed() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.fixture
def silent() -> Iterator[int]:
    """A port where connections are taken and nothing is ever answered."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(8)
        yield sock.getsockname()[1]


def said(backend: str, environ: dict[str, str], *sets: str) -> list[Finding]:
    subject = resolved("sim", *(name + backend for name in BACKEND), *sets)
    machine = machine_for("sim")
    plan, _ = plan_of(subject, machine)
    found = list(run_checks(cluster.CHECKS, subject, plan, machine, environ))
    codes(found)
    return found


def test_etcd_that_lets_nobody_in() -> None:
    # What etcd 3.4 answers to a call without a user; the real one is asked in tests/nodes.
    no = {"error": "etcdserver: user name is empty", "code": 3}
    answers: dict[str, tuple[int, object]] = {"/health": (200, {"health": "true"}), "/v3/": (400, no)}
    subject, machine = resolved("sim", *(name + "etcd" for name in BACKEND)), machine_for("sim")
    plan, _ = plan_of(subject, machine)
    with serving(answers) as port:
        url = f"http://127.0.0.1:{port}"
        plan = dataclasses.replace(plan, join=Join("etcd", namespace="sim", endpoints=(url,)))
        (finding,) = run_checks(cluster.CHECKS, subject, plan, machine, {"ETCD_ENDPOINTS": url})
    assert finding.code == "etcd-refused"
    assert "user name is empty" in finding.what


def joined(answers: Mapping[str, tuple[int, object]], scheme: str, environ: Mapping[str, str]) -> Finding:
    """The only finding about an etcd that answers so over plain HTTP; `URL` in `environ` stands for its address."""
    with serving(answers) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        # As the planner tells Dynamo where it joins.
        told = f"frontend.env.ETCD_ENDPOINTS={url}"
        subject, machine = resolved("sim", *(name + "etcd" for name in BACKEND), told), machine_for("sim")
        plan, _ = plan_of(subject, machine)
        plan = dataclasses.replace(plan, join=Join("etcd", namespace="sim", endpoints=(url,)))
        given = {name: value.replace("URL", url) for name, value in environ.items()}
        (finding,) = run_checks(cluster.CHECKS, subject, plan, machine, given)
    return finding


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        ({}, "--etcd-endpoints"),
        ({"ETCD_ENDPOINTS": "http://10.0.0.9:2379"}, "--etcd-endpoints"),  # which the option overrides
        ({"ETCD_ENDPOINTS": " URL,"}, "ETCD_ENDPOINTS"),
        ({"LAUNCHER_ETCD_ENDPOINTS": "URL"}, "LAUNCHER_ETCD_ENDPOINTS"),
    ],
)
def test_what_gave_the_endpoints_is_named(environ: dict[str, str], where: str) -> None:
    finding = joined({"/": (503, {})}, "http", environ)
    assert (finding.code, finding.where) == ("etcd-unreachable", where)
    assert f"correct {where}" in finding.fix
    assert ("ETCD_ENDPOINTS" in finding.fix) == ("ETCD_ENDPOINTS" in where)


def test_endpoints_that_nobody_gave() -> None:
    subject, machine = resolved("sim"), machine_for("sim")
    plan, _ = plan_of(subject, machine)
    plan = dataclasses.replace(plan, join=Join("etcd", namespace="sim", endpoints=(etcd.ETCD_DEFAULT,)))
    assert etcd.source(plan, {}) == "the default of --etcd-endpoints"


def test_https_to_an_etcd_without_tls() -> None:
    finding = joined({"/health": (200, {"health": "true"})}, "https", {})
    assert (finding.code, finding.where) == ("etcd-tls", "--etcd-endpoints")
    assert finding.what.endswith(": this endpoint speaks plain http")
    assert finding.fix == "http:// instead of https://"


def test_https_to_one_that_just_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As etcd 3.4 does."""
    healthy = reach.Answer(200, '{"health":"true"}')
    closed = reach.Answer(error="[ssl: unexpected_eof_while_reading] eof occurred in violation of protocol")
    monkeypatch.setattr(reach, "get", lambda url, **_: closed if url.startswith("https:") else healthy)
    assert joined({}, "https", {}).what.endswith(": this endpoint speaks plain http")
    monkeypatch.setattr(reach, "get", lambda url, **_: closed)
    assert "eof occurred" in joined({}, "https", {}).what


def test_a_user_for_an_etcd_without_users() -> None:
    no = {"error": "etcdserver: authentication is not enabled", "code": 9}
    answers: dict[str, tuple[int, object]] = {"/health": (200, {"health": "true"}), "/v3/": (400, no)}
    finding = joined(answers, "http", {"ETCD_AUTH_USERNAME": "root", "ETCD_AUTH_PASSWORD": "sesame"})
    assert (finding.code, finding.where) == ("etcd-refused", "ETCD_AUTH_USERNAME")
    assert finding.fix.startswith("unset ETCD_AUTH_USERNAME")


def test_answers_must_come_in_where_the_node_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo before 1.5 cannot be told where; it takes the address that leads out of the machine."""
    subject, machine = resolved("sim"), machine_for("sim")
    monkeypatch.setattr(neighbours, "source_address", lambda: "10.9.0.2")

    def said(host: str, dynamo: tuple[int, ...]) -> list[str]:
        join = Join("etcd", host=host, interface="eth0", namespace="sim", endpoints=("http://10.0.0.9:2379",))
        with planned("sim") as held:
            request = dataclasses.replace(held.planner._request, join=join, dynamo=dynamo)
            plan = Planner(subject.target, held.machine, request, held.planner._ports).plan()
        return [finding.code for finding in neighbours.answers(subject, plan, machine, {})]

    assert said("10.0.0.2", (1, 4, 2)) == ["answers-elsewhere"]
    assert said("10.9.0.2", (1, 4, 2)) == []
    assert said("10.0.0.2", (1, 6, 1)) == []
    assert said("127.0.0.1", (1, 4, 2)) == []


def test_file_discovery_asks_nobody() -> None:
    assert not said("file", {"ETCD_ENDPOINTS": "http://127.0.0.1:1"})


def test_etcd_that_is_well() -> None:
    with serving({"/health": (200, {"health": "true", "reason": ""})}) as port:
        assert not said("etcd", {"ETCD_ENDPOINTS": f"http://127.0.0.1:{port}"})


def test_etcd_that_is_not_there(closed: int) -> None:
    (finding,) = said("etcd", {"ETCD_ENDPOINTS": f"http://127.0.0.1:{closed}"})
    assert finding.code == "etcd-unreachable"
    assert finding.severity is Severity.ERROR
    assert "connection refused" in finding.what


def test_etcd_that_is_ill_or_no_etcd() -> None:
    with serving({"/health": (503, {"health": "false", "reason": "NO_LEADER"})}) as port:
        (finding,) = said("etcd", {"ETCD_ENDPOINTS": f"http://127.0.0.1:{port}"})
        assert "answers 503" in finding.what
        assert "NO_LEADER" in finding.what
    with serving({"/": (200, ["hello"])}) as port:
        (finding,) = said("etcd", {"ETCD_ENDPOINTS": f"http://127.0.0.1:{port}"})
        assert "answers 200" in finding.what


def test_one_healthy_etcd_is_enough(closed: int) -> None:
    with serving({"/health": (200, {"health": "true"})}) as port:
        endpoints = f"http://127.0.0.1:{closed},http://127.0.0.1:{port}"
        (finding,) = said("etcd", {"ETCD_ENDPOINTS": endpoints})
    assert finding.severity is Severity.WARNING


def test_silence_ends_after_a_second(silent: int) -> None:
    began = time.monotonic()
    endpoints = ",".join([f"http://127.0.0.1:{silent}"] * 3)
    found = said("etcd", {"ETCD_ENDPOINTS": endpoints})
    assert len(found) == 3
    assert all("no answer within 1 s" in finding.what for finding in found)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("127.0.0.1:2379", "no address"),
        ("http://[::1", "no address"),
        ("http://127.0.0.1:99999", "no address"),
        ("http://no-such-host.invalid:2379", "cannot be resolved"),
        ("", "is empty"),
    ],
)
def test_endpoints_that_are_no_addresses(endpoint: str, words: str) -> None:
    found = said("etcd", {"ETCD_ENDPOINTS": endpoint})
    assert any(words in finding.what or "no answer within" in finding.what for finding in found), found


def test_the_targets_endpoints_count(closed: int) -> None:
    (finding,) = said("etcd", {}, f"frontend.env.ETCD_ENDPOINTS=http://127.0.0.1:{closed}")
    assert str(closed) in finding.what


# Kubernetes -----------------------------------------------------------------------------------------


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("serving")
    return tmp_path


def asked(environ: dict[str, str], account: Path) -> list[Finding]:
    subject = resolved("sim", *(name + "kubernetes" for name in BACKEND))
    machine = machine_for("sim")
    plan, _ = plan_of(subject, machine)
    return list(cluster.kubernetes(subject, plan, machine, environ, account, "http"))


SLICES = "/apis/discovery.k8s.io/v1/namespaces/serving/endpointslices"
METADATA = "/apis/nvidia.com/v1alpha1/namespaces/serving/dynamoworkermetadatas"
FORBIDDEN = {
    "message": 'endpointslices.discovery.k8s.io is forbidden: User "system:serviceaccount:serving:default"'
}


def test_outside_of_a_cluster() -> None:
    (finding,) = said("kubernetes", {})
    assert finding.code == "kubernetes-absent"


def test_a_pod_has_one_identity(tmp_path: Path) -> None:
    def found(environ: dict[str, str], *sets: str) -> list[str]:
        subject = resolved("sim", *(name + "kubernetes" for name in BACKEND), *sets)
        machine = machine_for("sim")
        plan, _ = plan_of(subject, machine)
        return [each.code for each in cluster.identity(subject, plan, machine, environ, tmp_path)]

    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    one = ("workers.prefill=null", "workers.decode=null", "workers.aggregated.count=1")
    assert found({}) == []
    assert found(inside) == ["kubernetes-pod", "kubernetes-workers"]
    assert found(inside | {"POD_NAME": "p"}, *one) == ["kubernetes-pod"]
    assert found(inside | {"POD_NAME": "p", "POD_UID": "u"}, *one) == []
    for name in ("pod_name", "pod_uid"):
        (tmp_path / name).write_text("x")
    assert found(inside, *one) == []


def test_without_a_service_account(tmp_path: Path) -> None:
    (finding,) = asked({"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, tmp_path)
    assert finding.code == "kubernetes-account"
    assert "no such file" in finding.what


def environ(port: int) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}


def test_all_rights(account: Path) -> None:
    with serving({SLICES: (200, {"items": []}), METADATA: (200, {"items": []})}) as port:
        assert not asked(environ(port), account)


def test_no_rights_and_no_definition(account: Path) -> None:
    with serving({SLICES: (403, FORBIDDEN), METADATA: (404, {})}) as port:
        forbidden, undefined = asked(environ(port), account)
    assert forbidden.code == "kubernetes-forbidden"
    assert "system:serviceaccount:serving:default" in forbidden.what
    assert undefined.code == "kubernetes-crd"


def test_an_api_server_that_is_not_there_or_ill(account: Path, closed: int) -> None:
    (finding,) = asked(environ(closed), account)
    assert finding.code == "kubernetes-unreachable"
    assert "connection refused" in finding.what
    with serving({"/": (500, {"message": "etcd is down"})}) as port:
        found = asked(environ(port), account)
    assert {finding.code for finding in found} == {"kubernetes-unreachable"}
    assert "etcd is down" in found[0].what


def test_every_code_is_seen_here() -> None:
    # Certificates and the other nodes take a real etcd.
    real = Path(__file__).parents[1] / "nodes"
    text = "".join(path.read_text() for path in (Path(__file__), *real.glob("test_*.py")))
    codes = [code for check in cluster.CHECKS for code in check.codes]
    assert [code for code in codes if f'"{code}"' not in text and f"[{code}]" not in text] == []


def test_reaching_a_server_or_a_proxy(closed: int) -> None:
    assert reach.tcp_error("127.0.0.1", closed, {}) == "connection refused"
    assert reach.tcp_error("127.0.0.1", closed, {"HTTPS_PROXY": "http://proxy:3128"}) is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert reach.tcp_error("127.0.0.1", server.getsockname()[1], {}) is None
