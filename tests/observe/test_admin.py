"""The admin server answers every method and path sensibly, and tells no secrets and no tracebacks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import aiohttp
import pytest

from launcher.findings import LauncherError
from launcher.observe.admin import Admin, Pages
from launcher.observe.listener import listen
from launcher.plan.ports import free_everywhere
from launcher.supervise import strays
from launcher.supervise.logpump import LogPump
from tests.observe.support import answering, run, serving

Answer = tuple[int, dict[str, str], str]


async def metrics() -> str:
    return "# TYPE x gauge\nx 1\n"


def ask(*requests: tuple[str, str], **changes: Any) -> list[Answer]:
    """Status, headers and body of each (method, path)."""
    values: dict[str, Any] = {
        "reasons": list, "started": lambda: True, "status": lambda: {"ready": True}, "metrics": metrics,
    }  # fmt: skip

    async def main() -> list[Answer]:
        admin = Admin(Pages(**(values | changes)))
        port = next(number for number in range(28000, 32000) if free_everywhere(number))
        await admin.start(listen("127.0.0.1", port))
        try:
            async with aiohttp.ClientSession(trust_env=False) as session:
                answers = []
                for method, path in requests:
                    async with session.request(method, f"http://127.0.0.1:{port}{path}") as response:
                        answers.append((response.status, dict(response.headers), await response.text()))
                return answers
        finally:
            await admin.close()

    return run(main())


def test_probes_say_why() -> None:
    answers = ask(("GET", "/livez"), ("GET", "/startupz"), ("GET", "/readyz"), reasons=lambda: ["decode-0 is loading"],
                  started=lambda: False)  # fmt: skip
    assert [(status, body) for status, _, body in answers] == [
        (200, "ok\n"),
        (503, "decode-0 is loading\n"),
        (503, "decode-0 is loading\n"),
    ]


def test_started_once_is_started_even_when_not_ready() -> None:
    (answer,) = ask(("GET", "/startupz"), reasons=lambda: ["draining"])
    assert answer[0] == 200


@pytest.mark.parametrize("path", ["/livez", "/startupz", "/readyz", "/status", "/metrics", "/"])
def test_head_is_get_without_a_body(path: str) -> None:
    head, got = ask(("HEAD", path), ("GET", path))
    assert (head[0], head[2]) == (200, "")
    assert head[1]["Content-Type"] == got[1]["Content-Type"]
    assert head[1]["Content-Length"] == str(len(got[2].encode()))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(method: str) -> None:
    ((status, headers, body),) = ask((method, "/status"))
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"
    assert "read-only" in body


@pytest.mark.parametrize("path", ["/nope", "/status/", "/../etc/passwd", "/status%00", "//status"])
def test_what_is_not_there_is_404_and_says_what_is(path: str) -> None:
    ((status, _, body),) = ask(("GET", path))
    assert status == 404
    assert "/metrics" in body


def test_metrics_have_the_type_that_prometheus_wants() -> None:
    ((status, headers, body),) = ask(("GET", "/metrics"))
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert body.endswith("x 1\n")


def test_a_fault_of_ours_goes_to_the_log_not_to_the_client() -> None:
    told: list[str] = []

    def broken() -> dict[str, Any]:
        raise RuntimeError("HF_TOKEN=abc")

    first, second = ask(("GET", "/status"), ("GET", "/livez"), status=broken, failed=told.append)
    assert first[0] == 500
    assert "abc" not in first[2]
    assert second[0] == 200
    assert told == ["admin page /status failed: RuntimeError: HF_TOKEN=abc"]


@pytest.mark.parametrize(
    "request_", [b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"],
    ids=["long", "version", "tls"],
)  # fmt: skip
def test_what_is_no_http_gets_400_and_at_most_one_line_of_the_log(
    request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[tuple[str, str]] = []

    class Told:
        def log(self, text: str, level: str = "info") -> None:
            said.append((level, text))

    async def main() -> None:
        admin = Admin(Pages(list, lambda: True, dict, metrics))
        port = next(number for number in range(28000, 32000) if free_everywhere(number))
        await admin.start(listen("127.0.0.1", port))
        try:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request_)
                assert (await reader.readline()).startswith(b"HTTP/1.0 400 ")
                writer.close()
        finally:
            await admin.close()

    with strays.caught(cast(LogPump, Told())):
        run(main())
    assert len(said) <= 1
    for level, text in said:
        assert level == "info"
        assert "127.0.0.1 sent no HTTP request (" in text
        assert "\n" not in text
    assert capfd.readouterr().err == ""


def test_a_taken_port_is_a_finding() -> None:
    async def main() -> None:
        async with serving(answering(b"")) as port:
            with pytest.raises(LauncherError) as caught:
                listen("127.0.0.1", port)
            assert "--admin-port" in caught.value.findings[0].line()

    run(main())


def test_a_slow_scrape_holds_up_no_probe() -> None:
    async def slow() -> str:
        await asyncio.sleep(1.0)
        return ""

    async def main(get: Callable[[], Awaitable[str]]) -> None:
        admin = Admin(Pages(list, lambda: True, dict, get))
        port = next(number for number in range(28000, 32000) if free_everywhere(number))
        await admin.start(listen("127.0.0.1", port))
        async with aiohttp.ClientSession(trust_env=False) as session:
            scrape = asyncio.create_task(session.get(f"http://127.0.0.1:{port}/metrics"))
            await asyncio.sleep(0.1)
            async with session.get(f"http://127.0.0.1:{port}/livez") as response:
                assert response.status == 200
            assert not scrape.done()
            (await scrape).close()
        await admin.close()

    run(main(slow))
