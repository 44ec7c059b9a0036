"""Each claim of a plan, put to a running deployment once: which proof it takes, and where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launcher.plan.model import WORKER_ROLES, Plan, Role
from launcher.prove import chat, kv_routing, transfer
from launcher.prove.evidence import Evidence
from launcher.prove.frontend import Frontend
from launcher.prove.kv_routing import KvRouting
from launcher.prove.proof import Proof, failed, skipped
from launcher.prove.transfer import Member, Transfer
from launcher.supervise.events import ProcessState

COMPLETION, TOOL_CALL = "completion", "tool call"
OFF = "switched off"


class Claimed:
    """The claims of one running plan."""

    def __init__(
        self,
        plan: Plan,
        frontend: Frontend,
        snapshot: Callable[[], Sequence[ProcessState]],
        evidence: Evidence | None = None,
    ) -> None:
        self._plan = plan
        self._frontend = frontend
        self._snapshot = snapshot
        self._evidence = evidence or Evidence()

    def policy(self, *names: str) -> str:
        """What a failure of these proofs means: the strictest of `require`, `warn` and `skip`."""
        found = {
            "require" if name == COMPLETION else self._plan.claims.policy.get(name, "skip") for name in names
        }
        return next(level for level in ("require", "warn", "skip") if level in found)

    async def completion(self) -> Sequence[Proof]:
        """One answer; where a tool call is required of the model too, one that says something.

        Random weights answer tokens that are no harmony, and whoever lets them off the tool call means that.
        """
        speaks = self._plan.claims.harmony and self.policy(TOOL_CALL) == "require"
        return (await chat.completion(self._frontend, COMPLETION, speaks=speaks),)

    async def tool_call(self) -> Sequence[Proof]:
        """One call of an offered tool."""
        if not self._plan.claims.harmony:
            why = "random text" if self._plan.engine == "mocker" else "no harmony text, or no parser reads it"
            return (skipped(TOOL_CALL, f"not provable here: {self._plan.engine} answers {why}"),)
        if self.policy(TOOL_CALL) == "skip":
            return (skipped(TOOL_CALL, OFF),)
        return (await chat.tool_call(self._frontend, TOOL_CALL),)

    async def kv_routing(self) -> Sequence[Proof]:
        """The KV-routing self-test over every worker that should publish."""
        name, claims = kv_routing.NAME, self._plan.claims
        if self.policy(name) == "skip":
            return (skipped(name, OFF),)
        if not claims.kv_events:
            return (skipped(name, "the router does not go by KV events"),)
        if "--no-router-kv-events" in self._plan.process(Role.FRONTEND.value).argv:
            fix = "remove --no-router-kv-events, or say so with router.approximate=true"
            fault = "the frontend was told to hear no KV events: it predicts what is cached"
            return (failed(name, fault, fix, final=True),)
        members, fault = await self._members()
        if fault:
            return (failed(name, fault),)
        publishing = (Role.PREFILL if self._disaggregated else Role.AGGREGATED,)
        test = KvRouting(
            self._frontend,
            {member.number: member.name for member, role in members if role in publishing},
            disaggregated=self._disaggregated,
            block_size=claims.block_size or None,
            registered=self._evidence.cards(),
            longest=claims.longest,
        )
        return (await test.run(),)

    async def transfer(self) -> Sequence[Proof]:
        """KV between every prefill and every decode worker, and its lane."""
        if not self._disaggregated:
            return (skipped(transfer.NAME, "aggregated: nothing is handed over"),)
        if self.policy(transfer.NAME, transfer.LANE) == "skip":
            return (skipped(transfer.NAME, OFF),)
        members, fault = await self._members()
        if fault:
            return (failed(transfer.NAME, fault),)
        test = Transfer(
            self._frontend,
            [member for member, role in members if role is Role.PREFILL],
            [member for member, role in members if role is Role.DECODE],
            self._evidence.ears.lanes,
            simulated=self._plan.simulated,
            longest=self._plan.claims.longest,
        )
        return [proof for proof in await test.run() if self.policy(proof.name) != "skip"]

    @property
    def _disaggregated(self) -> bool:
        return self._plan.claims.disaggregated

    async def _members(self) -> tuple[list[tuple[Member, Role]], str]:
        """The workers with their ids in the router; or why that cannot be said.

        This node's in the plan's order, then those of other nodes that the frontend sees.
        """
        instances, why = await self._frontend.instances()
        if instances is None:
            return [], f"the frontend does not answer: {why}"
        host = self._plan.join.host
        numbers = {each.port: each.number for each in instances if each.host == host}
        members = []
        for state in self._snapshot():
            if state.role not in WORKER_ROLES or not state.healthy:
                continue
            number = numbers.get(state.ports.get("rpc"))
            if number is None:
                return [], f"{state.name} is not seen by the frontend"
            here = Member(state.name, number, f"http://{host}:{state.ports.get('system')}")
            members.append((here, state.role))
        remote = self._evidence.remote()
        for each in instances:
            found = remote.get((each.host, each.port or 0))
            if found is not None:
                members += [(Member(found.name, each.number, found.metrics), Role(found.role))]
        return members, ""
