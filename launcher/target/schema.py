"""What a target may say. Values only; units are in the names or the docstrings.

The engine's own flags stay engine flags (`engine.args`); a value that several parties need (block size, KV
dtype, speculative decoding, parsers, ports) has one typed field here, and each party's flag is made from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from launcher.plan.model import Role
from launcher.target.proofs import Proofs

EngineKind = Literal["vllm", "trtllm", "mocker", "echo"]
Scalar = bool | int | float | str
FlagName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
EnvValue = Annotated[str, StringConstraints(max_length=32768, pattern=r"^[^\x00]*$")] | bool | int | float
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
ModelId = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$", max_length=200)
]
Args = dict[FlagName, Scalar | list[Any] | dict[str, Any]]
"""Flag without dashes to value: true gives `--flag`, false `--no-flag`, a mapping or list gives JSON."""
Env = dict[EnvName, EnvValue]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=0, le=86400)]


class _Part(BaseModel):
    # Built as part of Target alone: a validator for each part would cost 25 ms of every command.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Draft(_Part):
    """The draft model of speculative decoding."""

    id: ModelId
    revision: Text = "main"


class Model(_Part):
    """What is served."""

    id: ModelId
    revision: Text = "main"
    served_name: ModelId | None = None
    """The name that clients ask for; the model's id where not given."""
    path: Text | None = None
    """A local folder instead of the Hugging Face cache."""
    exclude: list[Text] = []
    """Patterns of repository files that no engine reads, skipped by the download."""
    max_context: Annotated[int, Field(ge=1, le=10_000_000)] = 131072
    """Tokens that the model was built for (`max_position_embeddings`)."""
    draft: Draft | None = None

    @property
    def name(self) -> str:
        return self.served_name or self.id


class Validated(_Part):
    """The releases that the target's values were validated with."""

    dynamo: Text
    engine: Text
    image: Text


class Hardware(_Part):
    """The node that a target needs."""

    gpu: list[Text] = []
    """GPU products that will do (`H200`); empty means none is needed."""
    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    """GPUs of one deployment."""
    gpus_per_node: Annotated[int, Field(ge=1, le=64)] | None = None
    """What a node of this kind offers, where fewer than `gpus` (GB200: 4)."""
    arch: Literal["amd64", "arm64"] | None = None
    shared_gpu: bool = False
    """Several workers on one GPU; each role's engine arguments split its memory."""
    gpu_memory_gib: Annotated[float, Field(gt=0, le=10000)] | None = None
    """Memory of one GPU that the target counts on, GiB."""
    memory_gib: Annotated[int, Field(ge=0, le=100_000)] = 0
    """RAM of the whole pod, GiB."""
    shm_gib: Annotated[int, Field(ge=0, le=100_000)] = 0
    """/dev/shm, GiB."""
    host_ipc: bool = False
    capabilities: list[Text] = []


class Engine(_Part):
    """What a worker runs, and what every worker of the target passes to it."""

    kind: EngineKind
    args: Args = {}
    env: Env = {}
    config: dict[str, Any] = {}
    """Keys of the engine's own YAML file (TensorRT-LLM)."""


class Workers(_Part):
    """The workers of one role."""

    count: Annotated[int, Field(ge=0, le=1024)]
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs of one worker."""
    min_ready: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Healthy workers below which the deployment, once it has been ready, is not ready any more; all of them where not
    given. The first time every worker counts."""
    args: Args = {}
    env: Env = {}
    config: dict[str, Any] = {}


class Roles(_Part):
    """Workers per role: aggregated alone, or prefill and decode together."""

    aggregated: Workers | None = None
    prefill: Workers | None = None
    decode: Workers | None = None

    def items(self) -> list[tuple[Role, Workers]]:
        """The roles that the target has, in the order in which the plan lists them."""
        pairs = ((Role.PREFILL, self.prefill), (Role.DECODE, self.decode), (Role.AGGREGATED, self.aggregated))
        return [(role, workers) for role, workers in pairs if workers is not None and workers.count > 0]

    @property
    def disaggregated(self) -> bool:
        return self.prefill is not None or self.decode is not None


class Router(_Part):
    """How the frontend chooses a worker."""

    mode: Literal["kv", "round-robin", "random"] = "kv"
    approximate: bool = False
    """KV mode without events: the router predicts what each worker has cached."""


class Frontend(_Part):
    """The Dynamo frontend."""

    args: Args = {}
    env: Env = {}
    migration_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How often a request may move to another worker when its own dies."""
    spare: bool = False
    """Keep a second frontend warm, for new requests to go on at once when the first dies (else after 3 to 11 s)."""


class Parsers(_Part):
    """Dynamo's parsers of the model's output format."""

    reasoning: Text | None = None
    tool_call: Text | None = None


class Transfer(_Part):
    """How KV moves from prefill to decode."""

    connector: Literal["nixl", "ucx"]
    role: Literal["kv_both", "kv_producer", "kv_consumer", "by-role"] = "kv_both"
    """vLLM's `kv_role`; by-role gives prefill kv_producer and decode kv_consumer."""
    buffer_device: Literal["cuda", "cpu"] | None = None
    max_tokens_in_buffer: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens of one request that the TensorRT-LLM cache transceiver can hold."""


class Offload(_Part):
    """Where KV blocks go that no longer fit on the GPU."""

    connector: Text
    bytes_per_rank: Annotated[int, Field(ge=1)]


class Kv(_Part):
    """The KV cache; the block size is stated here and nowhere else."""

    block_size: Annotated[int, Field(ge=1, le=8192)] = 64
    """Tokens of one KV block, for frontend and workers alike."""
    dtype: Text | None = None
    events: bool = True
    """Prefill and aggregated workers publish what they cache."""
    transfer: Transfer | None = None
    offload: Offload | None = None


class Speculative(_Part):
    """Speculative decoding, the same on every role (the draft layers' KV layout must match)."""

    method: Text
    num_tokens: Annotated[int, Field(ge=1, le=64)]
    extra: dict[str, Any] = {}
    """Further keys of vLLM's `--speculative-config`."""


class Network(_Part):
    """Where the deployment listens. Port 0 asks for any free port below the ephemeral range."""

    http_host: Text = "0.0.0.0"
    http_port: Port = 8000
    admin_host: Text = "127.0.0.1"
    admin_port: Port = 9000
    base_port: Annotated[int, Field(ge=1024, le=32000)] = 20000
    """Start of the internal ports; a taken block moves to the next free one."""


class Deadlines(_Part):
    """Times in seconds; see the drain schedule in `--dry-run`."""

    start_s: Seconds = 2700.0
    """From start to ready. Loading alone takes 15 to 30 minutes from slow storage."""
    pause_s: Seconds = 5.0
    """Between not ready and the first SIGTERM: load balancers take the pod out meanwhile."""
    grace_s: Seconds = 120.0
    """What the pod grants between SIGTERM and SIGKILL (`terminationGracePeriodSeconds`)."""


class Canary(_Part):
    """Finds a worker that answers its health page and does no work: see `launcher/prove/canary.py`."""

    enabled: bool = True
    interval_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Between looks. A worker that did nothing meanwhile gets a completion of four tokens."""
    timeout_s: Annotated[float, Field(ge=0.5, le=3600)] = 60.0
    """Without any progress on the requests that it has, a worker is dead after so long. Longer than the longest pause
    of a healthy engine, such as for kernels that are compiled on first use."""
    failures: Annotated[int, Field(ge=1, le=100)] = 3
    """Canaries in a row that are answered with an error, and mean the same."""


class Workload(_Part):
    """The traffic that the target was tuned for."""

    kind: Literal["trace", "synthetic"]
    isl: Annotated[int, Field(ge=1)]
    """Input tokens of a request, mean."""
    osl: Annotated[int, Field(ge=1)]
    """Output tokens of a request, mean."""
    concurrency: Annotated[int, Field(ge=1)]
    concurrency_gpus: Annotated[int, Field(ge=1)] | None = None
    """GPUs that the recipe multiplied a per-GPU concurrency by, where it did."""
    requests: Annotated[int, Field(ge=1)] | None = None
    warmup_requests: Annotated[int, Field(ge=0)] = 0
    cache_hit: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of input tokens that a warm prefix cache should hold."""
    trace_block: Annotated[int, Field(ge=1)] | None = None
    """Tokens of one hash block of the trace."""
    seed: int = 0


class Published(_Part):
    """Figures that others measured, with their conditions."""

    source: Text
    concurrency: int
    tok_s_gpu: float
    """Output tokens per second and GPU."""
    tok_s_user: float
    ttft_avg_s: float
    conditions: Text


class Simulation(_Part):
    """What `--engine mocker` passes to Dynamo's simulator besides the topology."""

    args: Args = {}
    env: Env = {}


class Toleration(_Part):
    """A node taint that the pods accept."""

    key: Text | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: Text | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Pod(_Part):
    """What a cluster asks of its pods beyond the target's hardware; read by `launcher render` only."""

    node_selector: dict[Text, str] = {}
    tolerations: list[Toleration] = []
    image_pull_secrets: list[Name] = []


class Target(_Part):
    """A whole target."""

    name: Name
    title: Text
    validated: Validated
    model: Model
    hardware: Hardware = Hardware()
    engine: Engine
    workers: Roles
    router: Router = Router()
    frontend: Frontend = Frontend()
    parsers: Parsers = Parsers()
    kv: Kv = Kv()
    speculative: Speculative | None = None
    network: Network = Network()
    deadlines: Deadlines = Deadlines()
    proofs: Proofs = Proofs()
    canary: Canary = Canary()
    simulation: Simulation = Simulation()
    pod: Pod = Pod()
    workload: Workload | None = None
    published: Published | None = None
    notes: list[Text] = []
