"""What the two engines without a model have in common: Dynamo's simulator and the echo worker."""

from __future__ import annotations

from typing import Any

from launcher import simmodel
from launcher.engines import environment, flags, model
from launcher.engines.base import STOP_STAGE, Context, PortNeed, Slot
from launcher.plan.model import Http, Process, Role, Stop
from launcher.target.schema import Target, Workers


class Simulated:
    """A worker that needs no GPU and no weights; `kind`, `module`, `args` and `env` make it one of them."""

    kind = ""
    module = ""
    """What `python -m` runs."""
    derived: dict[str, str] = {}
    """Engine flags that mean something to this worker, and its name for them."""
    simulated = True

    def port_needs(self, target: Target, role: Role, workers: Workers) -> tuple[PortNeed, ...]:
        return (PortNeed("system"), PortNeed("rpc"))

    def stop(self, target: Target, role: Role) -> Stop:
        return Stop(leader_s=6.0)

    def args(self, context: Context, slot: Slot, args: dict[str, Any]) -> dict[str, Any]:
        """The worker's flags, from those that both have."""
        raise NotImplementedError

    def env(self, context: Context) -> dict[str, str]:
        """What only this worker's environment has."""
        raise NotImplementedError

    def build(self, context: Context, slot: Slot) -> Process:
        target, workers = context.target, slot.workers
        assert workers is not None
        args: dict[str, Any] = {"model-path": str(simmodel.MODEL_PATH), "model-name": target.model.name}
        if slot.role is not Role.AGGREGATED:
            args["disaggregation-mode"] = slot.role.value
        args["block-size"] = target.kv.block_size
        for name, value in {**target.engine.args, **workers.args}.items():
            if name in self.derived:
                args[self.derived[name]] = value
        env = environment.shared(context, slot) | environment.endpoint_health() | model.model_env(context)
        return Process(
            name=slot.name,
            role=slot.role,
            argv=(context.python, "-m", self.module, *flags.to_argv(self.args(context, slot, args))),
            env=env | self.env(context) | flags.to_env(target.simulation.env),
            gpus=slot.gpus,
            ports=slot.ports,
            health=Http(context.join.host, slot.ports["system"], "/health"),
            stop=self.stop(target, slot.role),
            stop_stage=STOP_STAGE[slot.role],
            incarnation=slot.incarnation,
        )


def component(role: Role) -> str:
    """Dynamo's name for the part of a deployment that a role's workers are."""
    return "prefill" if role is Role.PREFILL else "backend"
