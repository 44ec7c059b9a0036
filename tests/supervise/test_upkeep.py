"""What heals, warms and takes orders, without any process."""

from __future__ import annotations

import asyncio
import dataclasses
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from launcher.control.server import ControlServer, Note, Refused
from launcher.discovery.heal import RESTART_S, RESTORE_S, Healer
from launcher.engines.warm import Warmth
from launcher.plan.model import Role
from launcher.prove.frontend import Frontend
from launcher.supervise.events import ProcessState, State
from tests.supervise.conftest import plan_of, process, run
from tests.support.control import order


def state(name: str, ready_at: float = 1.0, *, healthy: bool = True) -> ProcessState:
    role = Role(name.partition("-")[0])
    return ProcessState(name, role, 1, State.READY, "", {}, 0, {"rpc": 1}, 0.0, ready_at, None, healthy)


class Deeds:
    """A healer whose deeds are written down."""

    def __init__(self) -> None:
        self.restored: list[str] = []
        self.replaced: list[str] = []

    def restore(self, name: str) -> int:
        self.restored.append(name)
        return 3

    def healer(self) -> Healer:
        frontend = Frontend(session=None, url="http://x", model="m")  # type: ignore[arg-type]
        return Healer(frontend, list, self, lambda name, why: self.replaced.append(name), lambda *_: None)


def test_registrations_are_written_anew_before_anything_is_restarted() -> None:
    deeds, states = Deeds(), [state("frontend"), state("decode-0"), state("decode-1")]
    healer = deeds.healer()
    for second in range(int(RESTART_S)):
        healer.judge(states, ["decode-1"], 100.0 + second)
        assert len(deeds.restored) == second // int(RESTORE_S)
    assert set(deeds.restored) == {"decode-1"}
    assert deeds.replaced == []
    healer.judge(states, ["decode-1"], 100.0 + RESTART_S)
    assert deeds.replaced == ["decode-1"]


def test_what_is_seen_again_or_has_just_started_is_left_alone() -> None:
    deeds = Deeds()
    healer = deeds.healer()
    states = [state("frontend"), state("decode-0"), state("decode-1")]
    healer.judge(states, ["decode-1"], 100.0)
    healer.judge(states, [], 110.0)
    healer.judge(states, ["decode-1"], 120.0)
    states[2] = state("decode-1", ready_at=125.0)
    healer.judge(states, ["decode-1"], 139.0)
    states[0] = state("frontend", ready_at=139.0)
    healer.judge(states, ["decode-1"], 153.0)
    assert deeds.restored == []
    healer.judge(states, ["decode-1"], 154.0)
    assert deeds.restored == ["decode-1"]


def test_a_frontend_that_sees_nobody_is_the_one_to_be_restarted() -> None:
    deeds, names = Deeds(), ["decode-0", "decode-1"]
    healer = deeds.healer()
    states = [state("frontend"), *map(state, names)]
    healer.judge(states, names, 100.0)
    healer.judge(states, names, 100.0 + RESTART_S)
    assert deeds.replaced == ["frontend"]


def test_a_cache_is_warm_once_a_worker_was_ready_with_it(tmp_path: Path) -> None:
    env = {"VLLM_CACHE_ROOT": str(tmp_path / "key" / "vllm")}
    worker = dataclasses.replace(process("decode-0"), env=env, warm_key="vllm/decode/key")
    other = dataclasses.replace(process("prefill-0"), env=env, warm_key="vllm/prefill/key")
    warmth = Warmth(plan_of(worker, other, process("decode-9")))
    assert warmth.is_cold(worker.warm_key)
    (tmp_path / "key" / "vllm" / "torch_compile_cache").mkdir(parents=True)
    assert warmth.is_cold(worker.warm_key), "half a cache, left by a start that failed, is none"
    warmth.became_ready(worker)
    assert not warmth.is_cold(worker.warm_key)
    assert warmth.is_cold(other.warm_key)
    assert not warmth.is_cold("")
    (tmp_path / "key" / "vllm" / "torch_compile_cache").rmdir()
    assert warmth.is_cold(worker.warm_key), "emptied by somebody"


def test_orders_over_the_socket(tmp_path: Path) -> None:
    async def act(given: Mapping[str, Any], note: Note) -> None:
        note(f"on {given['what']}")
        if given["what"] == "no":
            raise Refused("not that")

    async def main() -> None:
        path = tmp_path / "ctl"
        server = ControlServer(path, {"act": act}, lambda text: None)
        await server.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await order(path, b'{"do": "act", "what": "yes"}\n') == [{"note": "on yes"}, {"ok": True}]
        assert (await order(path, b'{"do": "act", "what": "no"}\n'))[1] == {"ok": False, "error": "not that"}
        for bad in (b"nonsense\n", b'{"do": "else"}\n', b"[]\n", b'"act"\n', b"\xff\n"):
            (answer,) = await order(path, bad)
            assert answer == {"ok": False, "error": "no such order; there are: act"}
        (answer,) = await order(path, b"[" * 60_000 + b"\n")
        assert answer["error"].startswith("no such order")
        await server.close()

    run(main())


def test_the_frontends_pages_as_the_view_reads_them() -> None:
    from aiohttp import web

    from launcher.discovery.view import unseen

    async def main() -> None:
        pages = {
            "/health": {"instances": [{"endpoint": "generate", "component": "backend", "instance_id": 1,
                                       "transport": {"tcp": "127.0.0.1:1/x"}}]},
            "/v1/models/m/ready": {"ready": True, "namespaces": {"n": {"worker_types": {"decode": {"workers": 1}}}}},
        }  # fmt: skip

        async def page(request: web.Request) -> web.Response:
            return web.json_response(pages[request.path])

        app = web.Application()
        app.router.add_get("/{path:.*}", page)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        seen, away = state("decode-0"), dataclasses.replace(state("decode-1", 5.0), ports={"rpc": 2})
        async with aiohttp.ClientSession(trust_env=False) as session:
            frontend = Frontend(session, f"http://127.0.0.1:{port}", "m")
            assert await unseen(frontend, [seen]) == []
            assert await unseen(frontend, [seen, away]) == ["decode-1"]
            assert await unseen(frontend, [seen, dataclasses.replace(away, healthy=False)]) == []
            # A model without a whole role is not known, and the other role's workers are not to be blamed for it.
            known = pages.pop("/v1/models/m/ready")
            prefill = dataclasses.replace(state("prefill-0"), ports={"rpc": 1})
            loading = dataclasses.replace(state("decode-0"), healthy=False)
            assert await unseen(frontend, [prefill, loading]) == []
            assert await unseen(frontend, [prefill, state("decode-0")]) == ["prefill-0", "decode-0"]
            pages["/v1/models/m/ready"] = known
            # Listed, but not yet counted: the newest is taken for the one.
            assert await unseen(frontend, [seen, state("decode-2", 9.0)]) == ["decode-2"]
        await runner.cleanup()

    run(main())


@pytest.mark.parametrize("gpus", [(), ("0",)])
def test_without_nvml_no_restart_waits(gpus: tuple[str, ...]) -> None:
    from launcher.machine.release import released

    assert asyncio.run(released(gpus, "decode-0", lambda text, level: None, bound_s=1.0))
