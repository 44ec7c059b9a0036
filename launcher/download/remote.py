"""What the hub says a model consists of, and the HTTP client that fetches it. Imports huggingface-hub when called."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import getproxies

from launcher import __version__
from launcher.download.cache import PUBLIC_ENDPOINT
from launcher.download.manifest import Entry
from launcher.download.refusal import Refused
from launcher.findings import Exit, Finding, LauncherError, printable

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0
READ_S = 30.0
"""Silence of the server after which a connection counts as torn; HF_HUB_DOWNLOAD_TIMEOUT raises it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One commit of a repository."""

    commit: str
    entries: tuple[Entry, ...]


UNRESOLVED_TRIES = 3
"""For a host whose name cannot be resolved and that has not answered in this run: waiting brings no name."""


class Torn(Exception):
    """No answer, or one that broke off: worth another try. The text says what happened."""

    def __init__(self, text: str, tries: int | None = None) -> None:
        self.tries = tries
        """How often it is worth trying in all; None for as often as anything."""
        super().__init__(text)


class Hub:
    """One hub, as one user sees it."""

    def __init__(self, endpoint: str, token: str | None) -> None:
        import httpx
        from huggingface_hub.utils import build_hf_headers

        self.endpoint = endpoint
        self._token = token
        headers = build_hf_headers(
            token=token or False, library_name="gpt-oss-launcher", library_version=__version__
        )
        # Compressed answers would make sizes and ranges meaningless.
        headers["accept-encoding"] = "identity"
        self.reached: set[str] = set()
        """Hosts that have answered: their names are right, whatever a resolver says later."""
        read = max(READ_S, _seconds(os.environ.get("HF_HUB_DOWNLOAD_TIMEOUT")))
        self.client: httpx.Client = httpx.Client(
            headers=headers,
            follow_redirects=True,
            timeout=httpx.Timeout(read, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=64, keepalive_expiry=30),
            event_hooks={"response": [lambda response: self.reached.add(response.url.host)]},
        )

    def close(self) -> None:
        self.client.close()

    def url(self, model: str, commit: str, name: str) -> str:
        """Where a file is served, as huggingface_hub's `hf_hub_url` makes it."""
        return f"{self.endpoint}/{model}/resolve/{quote(commit, safe='')}/{quote(name)}"

    def list(self, model: str, revision: str) -> Listing:
        """The files of a revision with sizes and hashes. Raises Refused, Torn, or LauncherError for nonsense."""
        import httpx
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        api = HfApi(endpoint=self.endpoint, token=self._token or False, library_name="gpt-oss-launcher")
        try:
            info: Any = api.model_info(model, revision=revision, files_metadata=True, timeout=READ_S)
            self.reached.add(httpx.URL(self.endpoint).host)
            return Listing(str(info.sha), tuple(_entries(info.siblings or ())))
        except HfHubHTTPError as error:
            raise Refused(
                error.response.status_code, error.response.headers, str(error.response.url)
            ) from None
        except httpx.TransportError as error:
            raise torn(error, self.endpoint, self.reached) from None
        except httpx.InvalidURL as error:
            raise _address(self.endpoint, str(error)) from None
        except HFValidationError as error:
            raise LauncherError(Finding(code="model-unknown", what=str(error), where=model)) from None
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            # A proxy's login page answers 200 with HTML.
            raise LauncherError(
                Finding(
                    code="hub-nonsense",
                    what=f"{self.endpoint} did not answer as a Hugging Face hub: {str(error)[:200]}",
                    where="HF_ENDPOINT" if os.environ.get("HF_ENDPOINT") else "the network",
                    why="a proxy or a captive portal may stand between",
                    fix=f"open {self.endpoint}/api/models/{model} from this machine and see what comes",
                ),
                Exit.PROCESS_FAILED,
            ) from None


def torn(error: httpx.TransportError, endpoint: str, reached: Collection[str] = ()) -> Torn | LauncherError:
    """A failed exchange: worth another try, or a certificate or an address that never will be right.

    `reached`: the hosts that have answered before.
    """
    import httpx

    if isinstance(error, httpx.UnsupportedProtocol):
        return _address(endpoint, str(error))
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return LauncherError(
                Finding(
                    code="hub-certificate",
                    what=f"the certificate of {endpoint} is not trusted: {cause.verify_message}",
                    where="the network",
                    why="a proxy that opens TLS needs its own root certificate known here",
                    fix="SSL_CERT_FILE=the proxy's root certificate with the public ones",
                ),
                Exit.PROCESS_FAILED,
            )
        if isinstance(cause, socket.gaierror):
            host = _host(error) or endpoint
            proxy = ", or its proxy's" if getproxies() else ""
            why = (cause.strerror or str(cause)).lower()
            return Torn(
                f"the name {host}{proxy} cannot be resolved ({why})",
                None if host in reached else UNRESOLVED_TRIES,
            )
        cause = cause.__cause__ or cause.__context__
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return Torn(text[:1].lower() + text[1:200])


def _host(error: httpx.TransportError) -> str:
    """The host that a request went to, which after a redirect is another than the endpoint's."""
    try:
        return error.request.url.host
    except RuntimeError:  # it belongs to no request
        return ""


def _address(endpoint: str, text: str) -> LauncherError:
    return LauncherError(
        Finding(
            code="hub-address",
            what=f"{endpoint!r} is no address: {text[:200]}",
            where="HF_ENDPOINT" if os.environ.get("HF_ENDPOINT") else "the address",
            fix=f"an address such as {PUBLIC_ENDPOINT}",
        )
    )


def _entries(siblings: Any) -> Iterator[Entry]:
    for sibling in siblings:
        name = str(sibling.rfilename)
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            raise ValueError(f"a file named {name!r}")
        if sibling.lfs is not None:
            yield Entry(name, int(sibling.lfs.size), _hex(sibling.lfs.sha256, 64), True)
        else:
            yield Entry(name, int(sibling.size), _hex(sibling.blob_id, 40), False)


def _hex(text: Any, length: int) -> str:
    """A hash, which becomes a file's name."""
    if not isinstance(text, str) or len(text) != length or text.strip("0123456789abcdef"):
        raise ValueError(f"{text!r} in place of a hash")
    return text


def _seconds(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
