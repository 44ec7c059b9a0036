"""Past one node with etcd: whether it can be reached, and whether it lets this deployment in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from launcher.checks import reach
from launcher.checks.base import Check
from launcher.checks.inherited import child_env
from launcher.checks.plan.wiring import BACKEND
from launcher.engines import gate
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Process, Role
from launcher.target.resolve import Resolved

if TYPE_CHECKING:  # its HTTP client takes a while to import, and most runs have no etcd
    from launcher.discovery.etcd import Etcd

ETCD = "ETCD_ENDPOINTS"
OPTION, SETTING = "--etcd-endpoints", "LAUNCHER_ETCD_ENDPOINTS"
DEFAULTED = f"the default of {OPTION}"
PLAIN_HTTP = "this endpoint speaks plain http"
ETCD_DEFAULT = "http://localhost:2379"
CA, CERT, KEY = gate.FILES
T = TypeVar("T")


def reader(plan: Plan) -> Process:
    """The plan's frontend, or its first process of Dynamo."""
    named = [process for process in plan.processes if BACKEND in process.env]
    return next(
        (process for process in named if process.role is Role.FRONTEND),
        named[0] if named else plan.processes[0],
    )


def backend(plan: Plan) -> str:
    """The discovery backend of the plan's frontend, or of its first Dynamo process."""
    return reader(plan).env.get(BACKEND, "file")


def source(plan: Plan, environ: Mapping[str, str]) -> str:
    """What gave the endpoints: the option, a variable, or nobody."""
    join = plan.join
    if join.backend != "etcd":
        return ETCD  # of the environment or of the target
    for name in (SETTING, ETCD):
        given = [each.strip() for each in environ.get(name, "").split(",") if each.strip()]
        if given and join.endpoints == tuple(each if "://" in each else f"http://{each}" for each in given):
            return name
    return DEFAULTED if join.endpoints == (ETCD_DEFAULT,) else OPTION


def files(resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]) -> Iterator[Finding]:
    """ETCD_AUTH_CA, ETCD_AUTH_CLIENT_CERT and ETCD_AUTH_CLIENT_KEY name files, of the authority, certificate and key.

    Dynamo's documentation calls them paths too, but its runtime takes the values for the PEM texts themselves (1.3.1 to
    1.6.1): with paths it never connects. It reads them only where all three are set and no user is, and without them
    trusts no authority at all. So it is not given them: where etcd is behind TLS, the process `etcd-gate` does TLS on
    this node, and Dynamo speaks to it on loopback, with its user and password where etcd has users.
    """
    if not gate.secure(plan.join):
        return
    for name in gate.FILES:
        value = environ.get(name, "")
        if value.lstrip().startswith("-----BEGIN"):
            yield _file(f"{name} holds a PEM text", name, f"{name}=FILE with that text in it")
            return
        try:
            Path(value or "/dev/null").read_bytes()
        except OSError as error:
            yield _file(
                f"{value}: {(error.strerror or str(error)).lower()}", name, f"{name}=FILE in PEM format"
            )
            return
    if environ.get(KEY) and not environ.get(CERT):
        yield _file(f"{KEY} without {CERT}", KEY, f"{CERT}=FILE of the certificate that the key is of")
        return
    from launcher.discovery.etcd import tls

    try:
        tls({name: environ.get(name, "") for name in (CA,)})
    except OSError as error:
        yield _file(
            f"{environ[CA]} is no list of authorities: {reach.said(error)}", CA, f"{CA}=FILE in PEM format"
        )
        return
    try:
        tls(environ)
    except OSError as error:
        what = f"{environ[CERT]} and {environ.get(KEY) or 'no key'} are no pair: {reach.said(error)}"
        yield _file(what, CERT, f"{CERT} and {KEY} of one pair, in PEM format, the key without a passphrase")


def reachable(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """etcd must answer before anything starts: a Dynamo process that cannot reach it exits, at once or after 2 minutes.

    Each endpoint is asked for `/health`, as etcd's client port serves it. One that answers is enough. Its certificate
    must be of an authority that is trusted (ETCD_AUTH_CA, else the system's), valid now, and for the name or address
    that stands in the endpoint.
    """
    if backend(plan) != "etcd" or any(files(resolved, plan, machine, environ)):
        return
    env = child_env(reader(plan), environ, plan.scrub)
    given = ",".join(plan.join.endpoints) if gate.wanted(plan.join) else env.get(ETCD, ETCD_DEFAULT)
    endpoints = [each.strip() for each in given.split(",") if each.strip()]
    by = source(plan, environ)
    if not endpoints:
        yield _away(f"{by} is empty", Severity.ERROR, by, "http://HOST:2379")
        return
    own = (environ[CERT], environ.get(KEY) or None) if environ.get(CERT) else None
    late = reach.Answer(error=f"no answer within {reach.TIMEOUT_S:g} s")
    answers = reach.together(
        lambda endpoint: reach.get(
            endpoint.rstrip("/") + "/health", ca_file=environ.get(CA) or None, own=own
        ),
        endpoints,
        late,
    )
    healthy = sum(_healthy(answer) for answer in answers)
    severity = Severity.WARNING if healthy else Severity.ERROR
    trouble: set[tuple[str, str]] = set()
    for endpoint, answer in zip(endpoints, answers, strict=True):
        if _healthy(answer):
            continue
        said = answer.error or f"answers {answer.status} {short(answer.body)}"
        if _speaks_plain_http(endpoint, said):
            said = PLAIN_HTTP
        if wrong := _credential(endpoint, said, by, environ):
            # The members of one etcd have the same authority: said once.
            if wrong not in trouble:
                yield _tls(f"etcd at {endpoint}: {said}", wrong[0], wrong[1], severity)
            trouble.add(wrong)
            continue
        yield _away(
            f"etcd at {endpoint}: {said}",
            severity,
            by,
            f"start etcd there, {_corrected(by, env)}, or use file discovery on one node",
        )


def _corrected(by: str, env: Mapping[str, str]) -> str:
    """What to do about the endpoints that `by` gave."""
    if by == DEFAULTED:
        return f"give {OPTION}"
    return f"correct {by}" if by != ETCD else f"correct {ETCD} ({'is set' if ETCD in env else 'default'})"


def _speaks_plain_http(endpoint: str, said: str) -> bool:
    """Whether TLS failed because there is none. etcd 3.4 just closes the connection, so it is asked again without."""
    text = said.lower()
    if not endpoint.startswith("https:"):
        return False
    if "wrong version number" in text or "record layer failure" in text:
        return True
    ended = "eof" in text or "reset" in text
    return ended and reach.get(endpoint.replace("https:", "http:", 1).rstrip("/") + "/health").status == 200


def _credential(endpoint: str, said: str, by: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Where it was set and what would be right, where the words are about TLS; None where they are not."""
    text = said.lower()
    # etcd 3.4 just closes the connection, later ones answer in words.
    plain = endpoint.startswith("http:") and ("reset" in text or "remotedisconnected" in text)
    if plain or "http request to an https server" in text:
        return by, "https:// instead of http://, where it is behind TLS"
    if said == PLAIN_HTTP:
        return by, "http:// instead of https://"
    if "mismatch" in text:
        return by, "the name that etcd's certificate is for, or a certificate with this one"
    if "certificate not trusted" in text:
        if "expired" in text or "not yet valid" in text:
            return "etcd's certificate", "renew it on etcd's side; this machine's clock may be wrong too"
        return CA, f"{CA}=FILE of the authority that signed etcd's certificate"
    if "alert" in text or "certificate" in text:
        if environ.get(CERT):
            return (
                CERT,
                "a certificate that is valid now, for client authentication, of an authority that etcd trusts",
            )
        return CERT, f"etcd asks for a certificate: {CERT}=FILE and {KEY}=FILE"
    return None


def rights(resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]) -> Iterator[Finding]:
    """etcd must also let this deployment in: user and password (ETCD_AUTH_*) are asked for with every call but /health.

    Each Dynamo process signs in for itself with the same variables. Keys are `v1/` and `gpt-oss-launcher/`, read and
    write. The launcher uses etcd's JSON gateway, which refuses a certificate with a common name while etcd has users
    (etcd 3.3 to 3.6): the name would be taken for the gateway's own, not the client's.
    """
    if closed(resolved, plan, machine, environ):
        return

    from launcher.discovery import nodes
    from launcher.discovery.etcd import EtcdError

    async def ask(client: Etcd) -> str:
        try:
            for prefix in (nodes.folder(plan.join.namespace), f"v1/instances/{plan.join.namespace}/"):
                await client.range(prefix)
        except EtcdError as error:
            return str(error)
        return ""

    said = asked(plan, environ, ask)
    if not said:
        return
    user = environ.get("ETCD_AUTH_USERNAME")
    if user and "authentication is not enabled" in said:
        yield Finding(
            code="etcd-refused",
            what=f"etcd has no users, and the user {user} is given: {said}",
            where="ETCD_AUTH_USERNAME",
            why="every Dynamo process would exit, without saying why",
            fix="unset ETCD_AUTH_USERNAME and ETCD_AUTH_PASSWORD, or enable authentication in etcd",
        )
        return
    common = "CommonName" in said
    yield Finding(
        code="etcd-refused",
        what=f"etcd refuses {f'the user {user}' if user else 'calls without a user'}: {said}",
        where=CERT if common else "ETCD_AUTH_USERNAME",
        why="etcd's JSON gateway, which the launcher uses, takes no certificate with a common name while it has users"
        if common
        else "every Dynamo process would exit, without saying why",
        fix="a client certificate without CN in its subject, and ETCD_AUTH_USERNAME and ETCD_AUTH_PASSWORD"
        if common
        else "ETCD_AUTH_USERNAME and ETCD_AUTH_PASSWORD of a user with the right to read and write v1/ and "
        "gpt-oss-launcher/",
    )


def closed(resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]) -> bool:
    """Whether there is no etcd of the launcher's own to ask, or it is known that it cannot be asked."""
    if plan.join.backend != "etcd" or any(files(resolved, plan, machine, environ)):
        return True
    found = reachable(resolved, plan, machine, environ)
    return any(finding.severity is Severity.ERROR for finding in found)


def asked(plan: Plan, environ: Mapping[str, str], ask: Callable[[Etcd], Awaitable[T]]) -> T:
    """What etcd answers to the launcher's own client."""
    import asyncio

    from launcher.discovery.etcd import Etcd

    async def session() -> T:
        client = Etcd(plan.join.endpoints, environ)
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(session())


def _file(what: str, where: str, fix: str) -> Finding:
    return Finding(
        code="etcd-files", what=what, where=where, why="no process of this node could reach etcd", fix=fix
    )


def _tls(what: str, where: str, fix: str, severity: Severity) -> Finding:
    return Finding(
        code="etcd-tls",
        what=what,
        severity=severity,
        where=where,
        why="no process of this node could reach etcd",
        fix=fix,
    )


def _away(what: str, severity: Severity, where: str, fix: str) -> Finding:
    return Finding(
        code="etcd-unreachable",
        what=what,
        severity=severity,
        where=where,
        why="every Dynamo process would exit: could not connect to etcd",
        fix=fix,
        link="dynamo#3493, dynamo#2315",
    )


def _healthy(answer: reach.Answer) -> bool:
    try:
        return answer.status == 200 and str(json.loads(answer.body)["health"]).lower() == "true"
    except (ValueError, KeyError, TypeError):
        return False


def short(text: str) -> str:
    """One line of at most 120 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."


CHECKS: tuple[Check, ...] = (
    Check(files, ("etcd-files",)),
    Check(reachable, ("etcd-unreachable", "etcd-tls")),
    Check(rights, ("etcd-refused",)),
)
