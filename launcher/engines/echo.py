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
from launcher.engines import vllm
from launcher.engines.base import Context, Slot
from launcher.engines.simulated import Simulated, component

OWN = ("kv-blocks", "context-length", "tokens-per-second", "kv-events")
"""What it takes from `simulation.args`; the rest there is meant for Dynamo's simulator."""


class Echo(Simulated):
    """Workers that compute nothing and answer a script, behind the real frontend, router and parsers."""

    kind = "echo"
    module = "launcher.engines.echo_worker"
    derived = {"max-model-len": "context-length", "max-seq-len": "context-length"}

    def args(self, context: Context, slot: Slot, args: dict[str, Any]) -> dict[str, Any]:
        target = context.target
        args = {"context-length": target.model.max_context, **args, "component": component(slot.role)}
        if not vllm.publishes(target, slot.role):
            args["kv-events"] = False
        args |= {name: value for name, value in target.simulation.args.items() if name in OWN}
        if args.get("kv-events") is True:
            # The worker's default; there is no flag that says so.
            del args["kv-events"]
        return args

    def env(self, context: Context) -> dict[str, str]:
        return _import_path(context)


def _import_path(context: Context) -> dict[str, str]:
    """The worker is part of this package, which another interpreter has to be shown."""
    if context.python == sys.executable:
        return {}
    root = str(Path(launcher.__file__).resolve().parent.parent)
    inherited = context.inherited.get("PYTHONPATH")
    return {"PYTHONPATH": root + (os.pathsep + inherited if inherited else "")}
