"""Where a launcher of this machine listens, as the environment and a target say: for commands that ask one."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from launcher import settings as settings_module
from launcher.findings import Finding, LauncherError, short
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


def http_url(text: str, where: str) -> str:
    """The URL of a server, as options give it: without an end of `/` or `/v1`, and with a scheme if it had none.

    Raises LauncherError for what is none: who asks there would wait for a deployment that cannot come. A word alone is
    none either, although it could be a host's name: nothing says that a server listens on its port 80.
    """
    url = text if "://" in text else f"http://{text}"
    if not _is_http(url, port_needed=url != text):
        raise LauncherError(
            Finding(
                code="command-line",
                what=f"{short(repr(text))} is no URL",
                where=where,
                fix="http://HOST:PORT",
            )
        )
    return url.rstrip("/").removesuffix("/v1")


def _is_http(url: str, *, port_needed: bool) -> bool:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if ":" in host:
            ipaddress.ip_address(host)
    except ValueError:
        return False
    known = parts.scheme in ("http", "https") and not re.search(r"[\s\x00-\x1f\x7f]", url)
    return (
        known
        and re.fullmatch(r"[\w.:%-]+", host) is not None
        and port != 0
        and not (port_needed and port is None)
    )
