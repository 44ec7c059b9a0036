"""Who asked for what: the command line over `LAUNCHER_*` variables over the target file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from launcher.findings import Finding, LauncherError, did_you_mean, nearest, short
from launcher.target import overrides, voice
from launcher.target.overrides import Override

PREFIX = "LAUNCHER_"
# Kubernetes injects these for a Service called "launcher"; nobody set them by hand.
SERVICE_LINK = re.compile(
    r"^LAUNCHER(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP).*)?)$|^LAUNCHER_PORT$"
)
RoleName = Literal["frontend", "prefill", "decode", "aggregated"]
Word = Annotated[str, Field(min_length=1, max_length=4096)]
PortNumber = Annotated[int, Field(ge=0, le=65535)]


def _not_empty(value: Any) -> Any:
    """Refuse the empty path: it would quietly mean the current folder."""
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("string_too_short", "empty", {"min_length": 1})
    return value


Place = Annotated[Path, BeforeValidator(_not_empty)]


class Settings(BaseSettings):
    """How to run a target, as opposed to what the target is. Every field is also `LAUNCHER_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    target: Word | None = None
    engine: Literal["auto", "vllm", "trtllm", "mocker", "echo"] = "auto"
    set: Annotated[tuple[str, ...], NoDecode] = ()
    """PATH=VALUE changes to the target; in the environment one per line."""
    ignore: Annotated[tuple[str, ...], NoDecode] = ()
    """CODE[=reason] of checks whose findings do not count; in the environment one per line."""
    http_host: Word | None = None
    http_port: PortNumber | None = None
    admin_host: Word | None = None
    admin_port: PortNumber | None = None
    base_port: Annotated[int, Field(ge=1024, le=32000)] | None = None
    require_fast_lane: bool = False
    """KV that moves from prefill to decode by TCP is an error."""
    log_format: Literal["auto", "text", "json"] = "auto"
    view: Literal["auto", "live", "plain"] = "auto"
    log_dir: Place | None = None
    state_dir: Place | None = None
    cache_dir: Place | None = None
    config_dir: Place | None = None
    discovery: Literal["file", "etcd", "kubernetes"] = "file"
    """How the parts of the deployment find each other; past one node etcd or kubernetes."""
    etcd_endpoints: Word | None = None
    """URLs, separated by commas; ETCD_ENDPOINTS where not given. Credentials are ETCD_AUTH_*, as Dynamo reads them."""
    etcd_lease_s: Annotated[int, Field(ge=2, le=3600)] = 30
    """Seconds that a registration outlives a process which nobody withdraws, and that etcd may be away."""
    roles: Annotated[tuple[RoleName, ...], NoDecode] = ()
    """The target's roles that run here; all of them where not given."""
    advertise: Word | None = None
    """Address (or interface) of this machine that the planes listen on past one node."""
    node: Word | None = None
    """What the other nodes call this one; its host name where not given."""
    dynamo_namespace: Word | None = None
    """Dynamo's namespace: what keeps two deployments on one etcd apart. The target's name where not given."""
    allow_multi_node_disagg: bool = False
    """vLLM's prefill and decode on different nodes, which the public recipe calls unsupported."""
    restart_budget: Annotated[int, Field(ge=0, le=1000)] = 5
    """Restarts of one process within ten minutes; 0 ends the run with exit code 4 at the first death."""
    python: Place | None = None
    """The interpreter that has Dynamo and the engine, where it is not the launcher's own."""
    machine: Word | None = None
    """Plan for a machine that is not this one, such as `H200` or `B200:8`; only for commands that start nothing."""

    @field_validator("roles", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))
        return value

    @field_validator("set", "ignore", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(line.strip() for line in value.splitlines() if line.strip())
        return value

    def overrides(self, given: Mapping[str, str]) -> list[Override]:
        """The settings that are values of the target, as overrides; `given` says who set each (see `load`)."""
        changes = []
        for field, path in TARGET_FIELDS.items():
            value = getattr(self, field)
            if value is not None:
                changes.append(Override(path, value, given.get(field, "default")))
        if self.engine != "auto":
            changes.append(Override(("engine", "kind"), self.engine, given.get("engine", "default")))
        if self.require_fast_lane:
            where = given.get("require_fast_lane", "default")
            changes.append(Override(("proofs", "fast_lane"), "require", where))
        # Last: the most exact of all, so it wins over a variable that says the same more generally.
        changes += [overrides.parse(text, given.get("set", "--set")) for text in self.set]
        return changes


TARGET_FIELDS: dict[str, tuple[str, ...]] = {
    "http_host": ("network", "http_host"),
    "http_port": ("network", "http_port"),
    "admin_host": ("network", "admin_host"),
    "admin_port": ("network", "admin_port"),
    "base_port": ("network", "base_port"),
}
"""Settings that stand for a value of the target."""


def load(
    given: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> tuple[Settings, dict[str, str]]:
    """The settings from the command line's values and the environment, and who set each field.

    Raises LauncherError with one finding for each unknown variable or wrong value.
    """
    environ = os.environ if environ is None else environ
    faults = list(_unknown(environ))
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            field = str(fault["loc"][0]) if fault["loc"] else ""
            where = _flag(field) if field in given else PREFIX + field.upper()
            faults.append(
                Finding(
                    code="setting-value",
                    what=f"{short(repr(fault.get('input')))} is {voice.predicate(fault)}",
                    where=where,
                    why=voice.BASE_PORT if field == "base_port" else "",
                    fix=_closest(fault),
                )
            )
        raise LauncherError(faults) from None
    if faults:
        raise LauncherError(faults)
    origins: dict[str, str] = {}
    for field in Settings.model_fields:
        if field in given:
            origins[field] = _flag(field)
        elif PREFIX + field.upper() in environ:
            origins[field] = PREFIX + field.upper()
    _check_config_dir(settings, origins)
    return settings, origins


def _check_config_dir(settings: Settings, origins: Mapping[str, str]) -> None:
    """A folder of targets that is not there holds no target: say that, not that a target is unknown."""
    folder = settings.config_dir
    if folder is None or os.path.isdir(folder / "targets"):
        return
    here = os.path.isdir(folder)
    raise LauncherError(
        Finding(
            code="config-dir",
            what=f"the folder {folder} has no folder targets/" if here else f"there is no folder {folder}",
            where=origins.get("config_dir", ""),
            fix="a folder with targets/*.yaml and targets/base/*.yaml, as configs has",
        )
    )


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _closest(fault: Any) -> str:
    if fault["type"] != "literal_error":
        return ""
    allowed = [part.strip("' ") for part in fault["ctx"]["expected"].replace(" or ", ", ").split(", ")]
    close = nearest(str(fault.get("input")), allowed)
    return f"did you mean {close!r}?" if close else ""


def _unknown(environ: Mapping[str, str]) -> Iterator[Finding]:
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    for name in sorted(environ):
        # LAUNCHER_TEST_*: the test suite's own; LAUNCHER_PROCESS marks a child of another launcher.
        if (
            not name.startswith(PREFIX)
            or name in known
            or name.startswith(("LAUNCHER_TEST_", "LAUNCHER_PROCESS"))
        ):
            continue
        if SERVICE_LINK.match(name):
            continue
        yield Finding(
            code="setting-unknown",
            what=f"there is no setting {short(name)}",
            where="the environment",
            fix=did_you_mean(name, known),
        )


def default_state_dir() -> Path:
    """Where runs keep their private folders: the user's runtime folder, else one of their own in /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return Path(runtime) / "gpt-oss-launcher"
    return Path("/tmp") / f"gpt-oss-launcher-{os.getuid()}"


def default_cache_dir() -> Path:
    """Compile caches: beside the model cache, which is what pods keep on a volume, else in the home folder."""
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home) / ".cache" / "gpt-oss-launcher"
    user = os.path.expanduser("~")  # without HOME and a user's entry it stays as it is
    caches = os.environ.get("XDG_CACHE_HOME") or (f"{user}/.cache" if os.path.isabs(user) else "/tmp")
    return Path(caches) / "gpt-oss-launcher"


def python_for(settings: Settings) -> str:
    """The interpreter that the children run under."""
    return str(settings.python) if settings.python is not None else sys.executable
