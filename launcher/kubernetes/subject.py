"""What is rendered: a target, its plan on a machine that is not here, and the choices about the cluster.

Planned with fixed settings in place of this machine's, so that a laptop and a build server write the same manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.checks import target as target_checks
from launcher.findings import Finding, LauncherError, Severity
from launcher.kubernetes.options import Options, name_findings
from launcher.machine import Machine
from launcher.machine.products import PRODUCTS, Product
from launcher.plan import gpus
from launcher.plan.build import Planner, Request
from launcher.plan.model import Plan, is_secret
from launcher.plan.ports import BLOCK, CEILING, PortTable
from launcher.target.resolve import Resolved
from launcher.target.schema import Target

MODEL_CACHE = "/model-cache"
"""Where the model cache is mounted, and HF_HOME."""
RUN_ROOT = "/etc/gpt-oss-launcher"
"""Where an operator's pods find the engine's files: the plan's run folder in them."""
SIMULATED_IMAGE = "gpt-oss-launcher:vllm-1.3.1"
"""For a target without an engine: every image of the launcher has the simulator, and this is the one built first."""
PYTHON = "python3"
"""The interpreter of the runtime images, on their PATH."""


class PaperPorts(PortTable):
    """Port numbers for a pod of its own: all are free there, whatever listens on this machine."""

    def __post_init__(self) -> None:
        self.is_free = lambda port: True
        self.start = self._next = self.base
        self._end = min(self.base + BLOCK, self.ceiling + 1)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The kind of node that a manifest asks for."""

    products: tuple[str, ...]
    """GPU products that will do; empty where no GPU is needed."""
    arch: str | None
    """The CPU that all of them have, or None where they differ or no GPU is asked for."""
    gpus: int
    """GPUs of the smallest of them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything that a manifest is made from."""

    target: Target
    plan: Plan
    nodes: Nodes
    options: Options
    passed: tuple[str, ...]
    """Flags of the launcher in the pod besides `--target`: what was changed about the target."""
    native: str
    """The engine that the target was written for: its runtime image is the base of the launcher's."""
    admin_host: str
    """In a pod the admin server listens for the kubelet and Prometheus, not on loopback only."""

    @property
    def name(self) -> str:
        return self.options.name or self.target.name

    @property
    def image(self) -> str:
        """The launcher's image: built from the Dockerfile, one for each runtime image."""
        if self.options.image is not None:
            return self.options.image
        if self.native == "mocker":
            return SIMULATED_IMAGE
        return f"gpt-oss-launcher:{self.native}-{self.target.validated.dynamo}"

    @property
    def gpus(self) -> int:
        """GPUs that the plan's processes compute on."""
        return len({gpu for process in self.plan.processes for gpu in process.gpus})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target as a person asked for it."""

    resolved: Resolved
    native: str
    """The engine that the target was written for."""
    options: Options
    passed: tuple[str, ...] = ()
    """Flags, each with its value, that the launcher in the pod needs to make the same plan."""
    cluster: tuple[str, ...] = ()
    """Flags, each with its value, that changed only the manifests."""
    machine: str | None = None
    """`GPU[:COUNT]` of the nodes, where only that kind will do."""
    admin_host: str = "0.0.0.0"

    def one_pod(self) -> Subject:
        """Planned for a node that holds the whole deployment. Raises LauncherError where none does."""
        return self._subject(gpus.needed(self.resolved.target))

    def spread(self) -> Subject:
        """Planned for nodes that hold any one worker: the first such kind of the target's list."""
        return self._subject(_largest_worker(self.resolved.target), first_only=True)

    def _subject(self, least: int, *, first_only: bool = False) -> Subject:
        target = self.resolved.target
        problems = [f for f in target_checks.check(self.resolved) if f.severity is Severity.ERROR]
        problems += name_findings(
            self.options.name or target.name, "--name" if self.options.name else "--target"
        )
        problems += _reachable(self)
        problems += _secrets(self)
        if problems:
            raise LauncherError(problems)
        self.options.check()
        nodes = self._nodes(least, first_only)
        machine = _machine(target, nodes)
        ports = PaperPorts(target.network.base_port, CEILING)
        planner = Planner(target, machine, _request(self), ports)
        return Subject(target, planner.plan(), nodes, self.options, self.passed, self.native, self.admin_host)

    def _nodes(self, least: int, first_only: bool) -> Nodes:
        target = self.resolved.target
        if target.engine.kind in ("mocker", "echo") or not target.hardware.gpu:
            return Nodes((), None, 0)
        candidates = self._candidates()
        fitting = [product for product in candidates if product.node_gpus >= least]
        if not fitting:
            sizes = ", ".join(f"{product.name} {product.node_gpus}" for product in candidates)
            raise LauncherError(
                Finding(
                    code="node-too-small",
                    what=f"{target.name} needs {least} GPUs on one node (a node has: {sizes})",
                    where=self.resolved.origin("hardware", "gpus"),
                    fix="--machine GPU:COUNT for larger nodes, or --kind dgd, which gives each worker a pod of its own",
                )
            )
        chosen = fitting[:1] if first_only else fitting
        arches = {product.arch for product in chosen}
        return Nodes(
            products=tuple(product.name for product in chosen),
            arch=target.hardware.arch or (arches.pop() if len(arches) == 1 else None),
            gpus=min(product.node_gpus for product in chosen),
        )

    def _candidates(self) -> list[Product]:
        wanted = self.resolved.target.hardware.gpu
        if self.machine is not None:
            name, _, count = self.machine.partition(":")
            product = PRODUCTS.get(name.upper())
            if product is None or product.name not in wanted or (count and not count.isdecimal()):
                raise LauncherError(
                    Finding(
                        code="machine-unfit",
                        what=f"{self.resolved.target.name} does not run on {self.machine}",
                        where="--machine",
                        fix="GPU[:COUNT] with one of: " + ", ".join(wanted),
                    )
                )
            return [product._replace(node_gpus=int(count))] if count else [product]
        known = [PRODUCTS[name] for name in wanted if name in PRODUCTS]
        if not known:
            raise LauncherError(
                Finding(
                    code="machine-unfit",
                    what="none of the target's GPUs is known: " + ", ".join(wanted),
                    where=self.resolved.origin("hardware", "gpu"),
                    fix="known: " + ", ".join(sorted(PRODUCTS)),
                )
            )
        arch = self.resolved.target.hardware.arch
        return [product for product in known if arch in (None, product.arch)] or known


def _reachable(wanted: Wanted) -> list[Finding]:
    """Other pods and the kubelet reach the two public ports."""
    network, origin = wanted.resolved.target.network, wanted.resolved.origin
    findings = []
    for purpose, host, port in (
        ("http", network.http_host, network.http_port),
        ("admin", wanted.admin_host, network.admin_port),
    ):
        if host in ("127.0.0.1", "::1", "localhost"):
            findings.append(
                Finding(
                    code="pod-loopback",
                    what=f"network.{purpose}_host is {host}: nothing outside the pod could reach it",
                    where=origin("network", f"{purpose}_host"),
                    fix=f"--{purpose}-host 0.0.0.0",
                )
            )
        if port == 0:
            findings.append(
                Finding(
                    code="pod-port",
                    what=f"network.{purpose}_port is 0: a manifest names its ports",
                    where=origin("network", f"{purpose}_port"),
                    fix="a number between 1 and 65535",
                )
            )
    return findings


def _secrets(wanted: Wanted) -> list[Finding]:
    """A manifest is committed and shown: no token is written into one."""
    target = wanted.resolved.target
    places: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [
        (("engine", "env"), target.engine.env),
        (("frontend", "env"), target.frontend.env),
        (("simulation", "env"), target.simulation.env),
        *((("workers", role.value, "env"), workers.env) for role, workers in target.workers.items()),
    ]
    return [
        Finding(
            code="render-secret",
            what=f"{'.'.join(path)}.{name} holds a secret",
            where=wanted.resolved.origin(*path, name),
            why="it would stand in the manifest for all to read",
            fix=f"put {name} into the Secret {wanted.options.secret}: the pods get all of its keys",
        )
        for path, values in places
        for name, value in values.items()
        if value and is_secret(name)
    ]


def _largest_worker(target: Target) -> int:
    return max((workers.tensor_parallel for _, workers in target.workers.items()), default=0)


def _machine(target: Target, nodes: Nodes) -> Machine:
    """A node like those asked for, with the releases that the target was validated with."""
    packages = {"ai-dynamo": target.validated.dynamo}
    if not nodes.products:
        # Any product: without GPUs the machine is a CPU node, of the architecture that most clusters have.
        return Machine.like("H200", 0, packages=packages)
    # GPUs as a pod sees them: those that it asked for, numbered from 0.
    return Machine.like(nodes.products[0], gpus.needed(target), packages=packages)


def _request(wanted: Wanted) -> Request:
    target = wanted.resolved.target
    return Request(
        run_dir=f"{RUN_ROOT}/{target.name}",
        # Where the launcher in a pod puts it by itself, see settings.default_cache_dir.
        cache_dir=f"{MODEL_CACHE}/.cache/gpt-oss-launcher",
        python=PYTHON,
        dynamo=_version(target.validated.dynamo),
        native=wanted.native,
        json_logs=True,
        http_port=target.network.http_port,
        admin_port=target.network.admin_port,
        inherited={},
    )


def _version(text: str) -> tuple[int, ...]:
    parts: Sequence[str] = text.split(".")[:3]
    return tuple(int(part) for part in parts if part.isdecimal())
