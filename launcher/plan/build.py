"""Target + machine -> plan. Pure but for trying ports; starts nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.engines import environment, events, frontend, gate, registry
from launcher.engines.base import Context, PortNeed, Slot
from launcher.findings import Finding, LauncherError
from launcher.frontdoor import names
from launcher.machine import Machine
from launcher.plan import deadlines, gpus
from launcher.plan.claims import claims
from launcher.plan.gpus import Assignment
from launcher.plan.join import ALONE, Join
from launcher.plan.model import Canary, Plan, Process, Role
from launcher.plan.ports import NoPorts, PortTable
from launcher.target.schema import Roles, Target, Workers


@dataclass(frozen=True, slots=True)
class Request:
    """What planning needs besides target and machine; every path is absolute."""

    run_dir: str
    cache_dir: str
    python: str
    dynamo: tuple[int, ...]
    native: str
    """The engine that the target was written for."""
    json_logs: bool
    http_port: int
    """The API's port, already chosen where the target left it open."""
    admin_port: int
    inherited: Mapping[str, str]
    join: Join = ALONE
    vocabulary: str = ""
    """Folder of the harmony vocabulary on this machine, where one was found."""
    lost_home: str | None = None
    """The user's home folder where nothing can be written into it; None where it serves."""


class Planner:
    """Makes the plan, and later each restarted process: same name and role, fresh ports."""

    def __init__(self, target: Target, machine: Machine, request: Request, ports: PortTable) -> None:
        self.disaggregated = any(role is not Role.AGGREGATED for role, _ in target.workers.items())
        self._join = _named(request.join, target, machine)
        self.target = target = here(target, request.join)
        self.machine = machine
        self._request = request
        self._ports = ports
        self._engine = registry.worker_engine(target)
        self._assigned = gpus.assign(target, self._gpu_names())
        stops = {role: self._engine.stop(target, role) for role, _ in target.workers.items()}
        self._deadlines = deadlines.schedule(target.deadlines, stops)
        self._context = self._make_context()

    def plan(self) -> Plan:
        """The whole deployment. Raises LauncherError where the ports do not suffice."""
        target, context = self.target, self._context
        try:
            processes = []
            if events.wanted(context.join):
                ports = self._take(events.NAME, events.port_needs(context.join))
                processes.append(events.build(context, ports))
            if gate.wanted(context.join):
                ports = self._take(gate.NAME, gate.PORT_NEEDS)
                self._context = context = dataclasses.replace(context, etcd_port=ports[gate.PURPOSE])
                # First: the others ask etcd through it.
                processes.insert(0, gate.build(context, ports))
            if context.join.has(Role.FRONTEND.value):
                processes.append(self._frontend(0))
                if target.frontend.spare:
                    processes.append(self._frontend(0, name=names.SPARE, private=True))
            for role, workers in target.workers.items():
                processes += [self._worker(role, workers, index, 0) for index in range(workers.count)]
        except NoPorts as error:
            raise LauncherError(_no_ports(error, target)) from None
        return Plan(
            target=target.name,
            engine=target.engine.kind,
            simulated=context.simulated,
            model=target.model.name,
            run_dir=context.run_dir,
            discovery_dir=context.discovery_dir,
            http_host=target.network.http_host,
            http_port=context.http_port,
            admin_host=target.network.admin_host,
            admin_port=self._request.admin_port,
            processes=tuple(processes),
            deadlines=self._deadlines,
            scrub=environment.SCRUB,
            min_ready={
                role.value: workers.count
                if workers.min_ready is None
                else min(workers.min_ready, workers.count)
                for role, workers in target.workers.items()
            },
            notes=tuple(self._notes()),
            claims=claims(target, processes, disaggregated=self.disaggregated),
            join=context.join,
            # The frontend passes it on, so it can be sent only where there is one.
            canary=Canary(target.canary.interval_s, target.canary.timeout_s, target.canary.failures)
            if target.canary.enabled and context.join.has(Role.FRONTEND.value)
            else None,
        )

    def respawn(self, process: Process, incarnation: int) -> Process:
        """The process again, with fresh ports; the API's port stays, because clients know it.

        Raises LauncherError where the block of ports is used up.
        """
        if process.name == events.NAME:
            return events.build(self._context, process.ports, incarnation)
        if process.name == gate.NAME:
            return gate.build(self._context, process.ports, incarnation)
        private = process.ports.get("http", self._context.http_port) != self._context.http_port
        shared = (self._context.http_port, names.PRIVATE)
        self._ports.release([port for port in process.ports.values() if port not in shared])
        try:
            if process.name in (Role.FRONTEND.value, names.SPARE):
                return self._frontend(incarnation, name=process.name, private=private)
            workers = dict(self.target.workers.items())[process.role]
            return self._worker(process.role, workers, int(process.name.rpartition("-")[2]), incarnation)
        except NoPorts as error:
            raise LauncherError(_no_ports(error, self.target)) from None

    def _frontend(
        self, incarnation: int, *, name: str = Role.FRONTEND.value, private: bool = False
    ) -> Process:
        """`private`: with an HTTP port of its own, behind the launcher's front door."""
        needs = (*frontend.PORT_NEEDS, PortNeed("http")) if private else frontend.PORT_NEEDS
        ports = self._take(name, needs)
        role = Role.FRONTEND if name == Role.FRONTEND.value else Role.HELPER
        slot = Slot(name, role, 0, None, (), (), ports, incarnation)
        return dataclasses.replace(frontend.build(self._context, slot), incarnation=incarnation)

    def _worker(self, role: Role, workers: Workers, index: int, incarnation: int) -> Process:
        name = f"{role.value}-{index}"
        ports = self._take(name, self._engine.port_needs(self.target, role, workers))
        given = self._assigned.get((role, index), Assignment((), ()))
        slot = Slot(name, role, index, workers, given.own, given.visible, ports, incarnation)
        return self._engine.build(self._context, slot)

    def _take(self, owner: str, needs: tuple[PortNeed, ...]) -> dict[str, int]:
        return {need.purpose: self._ports.take(owner, need.purpose, need.span) for need in needs}

    def _gpu_names(self) -> list[str]:
        """CUDA's names of the GPUs to use. Where too few are here, those that the right machine would have.

        The shortage is a check's finding; the plan still shows what would run.
        """
        if self._engine.simulated:
            return []
        visible = self.machine.visible
        by_uuid = "GPU-" in self.machine.visible_by
        names = [gpu.uuid if by_uuid else gpu.cuda_name for gpu in visible]
        wanted = gpus.needed(self.target)
        spare = (str(index) for index in range(wanted * 2 + len(names)) if str(index) not in names)
        while len(names) < wanted:
            names.append(next(spare))
        return names

    def _make_context(self) -> Context:
        target, request = self.target, self._request
        return Context(
            target=target,
            dynamo=request.dynamo,
            python=request.python,
            run_dir=request.run_dir,
            discovery_dir=f"{request.run_dir}/discovery",
            join=self._join,
            disaggregated=self.disaggregated,
            cache_dir=request.cache_dir,
            cache_key=self._cache_key(),
            http_host=target.network.http_host,
            http_port=request.http_port,
            frontend_drain_s=self._deadlines.drain_s[Role.FRONTEND.value],
            json_logs=request.json_logs,
            simulated=self._engine.simulated,
            native=request.native,
            vocabulary=request.vocabulary,
            inherited=request.inherited,
            lost_home=request.lost_home,
        )

    def _cache_key(self) -> str:
        """Versions, model and GPU: what decides whether compiled code may be used again."""
        packages = self.machine.packages
        parts = [
            f"{name}-{packages[name]}"
            for name in ("vllm", "tensorrt-llm", "torch", "triton")
            if name in packages
        ] or [self.target.validated.engine.replace(" ", "-")]
        gpu = (
            self.machine.visible[0].product if self.machine.visible else "".join(self.target.hardware.gpu[:1])
        )
        parts += [self.target.model.id.rpartition("/")[2], gpu or "no-gpu", self.machine.arch]
        return "_".join(parts)

    def _notes(self) -> list[str]:
        notes = []
        base, start = self.target.network.base_port, self._ports.start
        if start != base:
            notes.append(f"Ports {base}-{start - 1} are taken by other launchers, using {start}.")
        if self._context.etcd_port:
            notes.append(
                f"Dynamo reaches etcd through {gate.NAME} on loopback, open to this user's processes only: "
                "it does TLS, and leaves a member that is silent."
            )
        if self._engine.kind == "vllm":
            notes.append(
                "vLLM's torch.distributed store listens on all addresses, one port of the kernel's choice for each "
                "worker, and has no setting against it (0.23.0): keep the node's firewall or the pod's network closed."
            )
        if self._engine.kind == "echo":
            notes.append(
                "Simulated: no model is computed; the answers are a script in harmony, at a fixed pace."
            )
        elif self._context.simulated:
            notes.append("Simulated: no model is computed; text and timing come from Dynamo's simulator.")
            if self._request.native == "trtllm" and self.disaggregated:
                notes.append(
                    "The simulator's TensorRT-LLM type cannot hand over from prefill to decode "
                    "(Dynamo 1.3.1 to 1.6.1): its vLLM type stands in."
                )
        return notes


def _named(join: Join, target: Target, machine: Machine) -> Join:
    """The join of a request that says nothing about it: this machine alone."""
    if join.namespace:
        return join
    loopback = next((interface.name for interface in machine.interfaces if interface.loopback), "lo")
    return dataclasses.replace(join, namespace=target.name, interface=loopback)


def here(target: Target, join: Join) -> Target:
    """The target with those of its workers that run on this node."""
    if not join.roles:
        return target
    local = {role.value: workers for role, workers in target.workers.items() if join.has(role.value)}
    return target.model_copy(update={"workers": Roles(**local)})


def _no_ports(error: NoPorts, target: Target) -> Finding:
    return Finding(
        code="ports-exhausted",
        what=str(error),
        where="network.base_port",
        why=f"{target.name} needs ports of its own for each process",
        fix="choose a lower --base-port, or stop another launcher on this machine",
    )
