"""Where a launcher of this machine listens, as the environment and a target say: for commands that ask one."""

from __future__ import annotations

from typing import Any, NamedTuple

from launcher import settings as settings_module
from launcher.target.resolve import resolve
from launcher.target.schema import Network


class Addresses(NamedTuple):
    """URLs of a launcher, for a client on this machine."""

    admin: str
    admin_set_by: str
    """`LAUNCHER_ADMIN_PORT`, a target's file, or `the default`."""
    api: str
    api_given: bool
    """Somebody named the API's port: it is worth asking also where no admin server answers."""


def addresses(target: str | None = None) -> Addresses:
    """From `LAUNCHER_*` and the target that is named. Raises LauncherError for what is wrong with either."""
    values: dict[str, Any] = {} if target is None else {"target": target}
    settings, given = settings_module.load(values)
    if settings.target is not None:
        resolved = resolve(settings.target, settings.overrides(given), settings.config_dir)
        network = resolved.target.network
        origin = resolved.origin("network", "admin_port")
    else:
        named = {name: getattr(settings, name) for name in Network.model_fields}
        network = Network(**{name: value for name, value in named.items() if value is not None})
        origin = given.get("admin_port", given.get("admin_host", "default"))
    default = Network()
    return Addresses(
        # Port 0 takes any: only the launcher's log tells which.
        _url(network.admin_host, network.admin_port or default.admin_port),
        "the default" if origin == "default" else origin,
        _url(network.http_host, network.http_port or default.http_port),
        "http_port" in given,
    )


def _url(host: str, port: int) -> str:
    if host in ("0.0.0.0", ""):
        host = "127.0.0.1"
    if host == "::":
        host = "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
