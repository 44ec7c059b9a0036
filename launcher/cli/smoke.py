"""Ask a running deployment what its clients will ask: models, chat, streams, reasoning, tool calls, errors, KV routing.

Without --url it asks the launcher's admin server on this machine where the API is. Exit code 0 where every check
passed, 3 where one failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from launcher.cli.addresses import addresses, http_url
from launcher.cli.numbers import real
from launcher.findings import Exit, Finding, LauncherError, did_you_mean
from launcher.prove.proof import Outcome, Proof
from launcher.settings import load as load_settings

MARKS = {Outcome.PASSED: "pass", Outcome.FAILED: "FAIL", Outcome.SKIPPED: "skip"}
WIDTH = 19


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--url",
        help="the API, such as http://10.0.0.7:8000; any OpenAI-compatible server will do (a simulated one fails what "
        "only a model can answer, unless --admin is given too)",
    )
    parser.add_argument("--target", metavar="NAME", help="a target: its model, and its ports on this machine")
    parser.add_argument("--model", help="the name to ask for; the first that is listed if not given")
    parser.add_argument(
        "--admin",
        metavar="URL",
        help="the launcher's admin server (default: http://127.0.0.1:9000, or as LAUNCHER_ADMIN_PORT, "
        "LAUNCHER_ADMIN_HOST and LAUNCHER_TARGET say)",
    )
    parser.add_argument(
        "--wait", metavar="SECONDS", type=real(0), default=0.0, help="wait for ready at most so long"
    )
    parser.add_argument("--only", metavar="CHECKS", help="these checks only, separated by commas")
    parser.add_argument("--skip", metavar="CHECKS", help="all but these checks")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")


@dataclass(slots=True)
class Subject:
    """What is tested, as far as it is known before the first question."""

    url: str
    model: str | None = None
    admin: str | None = None
    engine: str = ""
    simulated: bool = False
    names: dict[int, str] = field(default_factory=dict)
    block_size: int | None = None


def run(args: argparse.Namespace) -> int:
    """Run the checks and print what they found."""
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    import aiohttp

    from launcher.prove import smoke
    from launcher.prove.frontend import Frontend

    chosen = _chosen(args, list(smoke.CHECKS))
    async with aiohttp.ClientSession(trust_env=False) as session:
        subject = await _subject(args, session)
        client = Frontend(session, subject.url, subject.model or "")
        client.model = subject.model or await _first_model(client)
        speaks = subject.engine != "mocker"
        what = smoke.Smoke(
            client,
            speaks=speaks,
            told=bool(subject.engine),
            names=subject.names,
            block_size=subject.block_size,
        )
        proofs = []
        if not args.json:
            simulated = f" ({subject.engine}, simulated)" if subject.simulated else ""
            print(f"{client.model} at {client.url}{simulated}", flush=True)
        async for proof in smoke.run(what, chosen):
            proofs.append(proof)
            if not args.json:
                print(line(proof), flush=True)
    failures = sum(not proof.ok for proof in proofs)
    if args.json:
        body = {
            "url": client.url,
            "model": client.model,
            "engine": subject.engine or None,
            "simulated": subject.simulated,
            "passed": failures == 0,
            "checks": [proof.to_json() for proof in proofs],
        }
        print(json.dumps(body, indent=2))
    else:
        counts = {outcome: sum(proof.outcome is outcome for proof in proofs) for outcome in Outcome}
        print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))
    return Exit.CHECK_FAILED if failures else Exit.OK


def line(proof: Proof) -> str:
    """One result as a row of the table; what to do about a failure on a line of its own."""
    row = f"  {MARKS[proof.outcome]}  {proof.name:<{WIDTH}}  {proof.seconds:6.2f} s  {proof.text}"
    return f"{row}\n{'':<{WIDTH + 20}}-> {proof.fix}" if proof.fix and not proof.ok else row


def _chosen(args: argparse.Namespace, known: list[str]) -> list[str]:
    for flag in ("only", "skip"):
        for name in _names(getattr(args, flag)):
            if name not in known:
                raise LauncherError(
                    Finding(
                        "command-line", f"no check {name!r}", where=f"--{flag}", fix=did_you_mean(name, known)
                    )
                )
    only, skip = _names(args.only), _names(args.skip)
    return [name for name in known if (not only or name in only) and name not in skip]


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


async def _subject(args: argparse.Namespace, session: Any) -> Subject:
    """Where the API is: as given, or as the launcher of this machine says."""
    model = args.model
    # Here, not where one is asked: a wrong one is wrong whether it is needed or not.
    api = http_url(args.url, "--url") if args.url is not None else None
    admin = http_url(args.admin, "--admin") if args.admin is not None else None
    if args.target is not None:
        from launcher.target.resolve import resolve

        model = model or resolve(args.target).target.model.name
    load_settings({})  # a misspelt LAUNCHER_ variable is said here too
    if api is not None and args.admin is None and args.target is None:
        return Subject(api, model)
    known = addresses(args.target)
    admin = admin or known.admin
    deadline = time.monotonic() + args.wait
    while True:
        status, why = await _status(session, admin)
        if status is not None and (status.get("ready") or time.monotonic() >= deadline):
            break
        if time.monotonic() >= deadline:
            if api is not None or known.api_given:
                return Subject(api or known.api, model)
            raise LauncherError(
                Finding(
                    "no-launcher",
                    f"no launcher answers at {admin}: {why}",
                    where="--admin" if args.admin is not None else known.admin_set_by,
                    fix="give the API with --url, or the admin server with --admin URL",
                ),
                Exit.CHECK_FAILED,
            )
        await asyncio.sleep(0.5)
    plan = status.get("plan") or {}
    return Subject(
        url=api or status["url"],
        model=model or status.get("model"),
        admin=admin,
        engine=status.get("engine") or "",
        simulated=bool(status.get("simulated")),
        names={
            process["ports"]["rpc"]: process["name"]
            for process in status.get("processes") or ()
            if "rpc" in process.get("ports", {})
        },
        block_size=(plan.get("claims") or {}).get("block_size"),
    )


async def _status(session: Any, admin: str) -> tuple[dict[str, Any] | None, str]:
    from launcher.prove.frontend import Frontend

    answer = await Frontend(session, admin, "").get("/status")
    if answer.ok and isinstance(answer.body, dict) and "url" in answer.body:
        return answer.body, ""
    return None, str(answer)


async def _first_model(client: Any) -> str:
    from launcher.prove import smoke

    answer = await client.get("/v1/models")
    data = answer.body.get("data") if answer.ok and isinstance(answer.body, dict) else None
    if isinstance(data, list) and data and isinstance(data[0], dict) and data[0].get("id"):
        return str(data[0]["id"])
    raise LauncherError(
        Finding(
            "no-model",
            f"{client.url} lists no model: {answer}",
            where="--url",
            fix=smoke.UNREADY if answer.status == 503 else "is the deployment ready, and is this the API?",
        ),
        Exit.CHECK_FAILED,
    )
