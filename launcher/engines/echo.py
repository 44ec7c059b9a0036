"""The echo worker in place of any engine: same processes, roles and ports as the simulator, answers in real harmony.

Where the simulator answers random text at a model's pace, the echo answers a script: reasoning, final text, a call of
the first tool. So the frontend's parsers, tool calls and KV-aware routing can be tried and proven without a GPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import launcher
from launcher import simmodel
from launcher.engines import environment, flags, model, vllm
from launcher.engines.base import STOP_STAGE, Context, PortNeed, Slot
from launcher.plan.model import Http, Process, Role, Stop
from launcher.target.schema import Target, Workers

DERIVED = {"max-model-len": "context-length", "max-seq-len": "context-length"}
"""Engine flags that mean something to the echo worker, and its name for them."""
OWN = ("kv-blocks", "context-length", "tokens-per-second", "kv-events")
"""What it takes from `simulation.args`; the rest there is meant for Dynamo's simulator."""


class Echo:
    """Workers that compute nothing and answer a script, behind the real frontend, router and parsers."""

    kind = "echo"
    simulated = True

    def port_needs(self, target: Target, role: Role, workers: Workers) -> tuple[PortNeed, ...]:
        return (PortNeed("system"), PortNeed("rpc"))

    def stop(self, target: Target, role: Role) -> Stop:
        return Stop(leader_s=6.0)

    def build(self, context: Context, slot: Slot) -> Process:
        target, workers = context.target, slot.workers
        assert workers is not None
        args: dict[str, Any] = {"model-path": str(simmodel.MODEL_PATH), "model-name": target.model.name}
        if slot.role is not Role.AGGREGATED:
            args["disaggregation-mode"] = slot.role.value
        args["component"] = "prefill" if slot.role is Role.PREFILL else "backend"
        args["block-size"] = target.kv.block_size
        args["context-length"] = target.model.max_context
        for name, value in {**target.engine.args, **workers.args}.items():
            if name in DERIVED:
                args[DERIVED[name]] = value
        if not vllm.publishes(target, slot.role):
            args["kv-events"] = False
        args |= {name: value for name, value in target.simulation.args.items() if name in OWN}
        if args.get("kv-events") is True:
            # The worker's default; there is no flag that says so.
            del args["kv-events"]
        env = environment.shared(context, slot) | environment.endpoint_health()
        env |= model.model_env(context) | _import_path(context)
        env |= flags.to_env(target.simulation.env)
        return Process(
            name=slot.name,
            role=slot.role,
            argv=(context.python, "-m", "launcher.engines.echo_worker", *flags.to_argv(args)),
            env=env,
            gpus=slot.gpus,
            ports=slot.ports,
            health=Http(context.join.host, slot.ports["system"], "/health"),
            stop=self.stop(target, slot.role),
            stop_stage=STOP_STAGE[slot.role],
            incarnation=slot.incarnation,
        )


def _import_path(context: Context) -> dict[str, str]:
    """The worker is part of this package, which another interpreter has to be shown."""
    if context.python == sys.executable:
        return {}
    root = str(Path(launcher.__file__).resolve().parent.parent)
    inherited = context.inherited.get("PYTHONPATH")
    return {"PYTHONPATH": root + (os.pathsep + inherited if inherited else "")}
