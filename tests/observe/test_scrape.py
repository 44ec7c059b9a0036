"""Children are asked at once, within a second, and none of them can spoil the page of the others."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import time

import pytest

from launcher.observe.scrape import Scrape, Scraper, Target, targets
from launcher.supervise.events import State
from tests.observe.support import Handler, answering, plan, run, samples, serving, state, value

GOOD = answering(b"# TYPE x gauge\nx 1\n")


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A page without end."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x 1\n" * 16384)
        await writer.drain()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte now and then: no single read takes long."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers, as a stopped process does."""
    await asyncio.sleep(60)


async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """No HTTP at all."""
    writer.write(b"\x00\xffSSH-2.0-nonsense\r\n\r\n")
    await writer.drain()


async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Dies in the middle of its page."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx 1\n")
    await writer.drain()


def scrape(*handlers: Handler | None, timeout_s: float = 1.5) -> Scrape:
    """One scrape of children that behave so; None is a child that listens nowhere."""

    async def main() -> Scrape:
        async with contextlib.AsyncExitStack() as stack:
            found = []
            for number, handler in enumerate(handlers):
                port = 1 if handler is None else await stack.enter_async_context(serving(handler))
                found.append(
                    Target(f"decode-{number}", "decode", str(number), f"http://127.0.0.1:{port}/metrics")
                )
            scraper = Scraper(lambda: found, timeout_s=timeout_s)
            try:
                return await scraper.scrape()
            finally:
                await scraper.close()

    return run(main())


@pytest.mark.parametrize(
    ("child", "says"),
    [
        (None, "Connect"),
        (silent, "no page within"),
        (drip, "no page within"),
        (flood, "more than"),
        (rude, "Error|Disconnected|Bad"),
        (short, "payload|Payload"),
        (answering(b"oops", status="500 Internal Server Error"), "HTTP 500"),
        (answering(b"", status="302 Found", headers="Location: http://127.0.0.1:1/\r\n"), "HTTP 302"),
        (answering(b"\x80\x81\xfe\xff" * 100), "no text"),
        (answering(b"<html><body>not found</body></html>"), "not a metrics page"),
        (answering(gzip.compress(b"x 1\n"), headers="Content-Encoding: gzip\r\n"), "no text"),
    ],
)
def test_a_bad_child_costs_only_its_own_metrics(child: Handler | None, says: str) -> None:
    found = scrape(GOOD, child, GOOD)
    assert value(found.merged.text, "x", worker="decode-0", role="decode", gpu="0") == 1
    assert value(found.merged.text, "x", worker="decode-2") == 1
    assert len(samples(found.merged.text)) == 2
    bad = found.results[1]
    assert bad.page is None
    assert re.search(says, bad.error), bad.error


def test_slow_children_are_asked_together() -> None:
    began = time.monotonic()
    scrape(*[silent] * 8, timeout_s=0.5)
    assert time.monotonic() - began < 2.5


def test_many_requests_make_one_scrape() -> None:
    asked = 0

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await GOOD(reader, writer)

    async def main() -> None:
        async with serving(counting) as port:
            target = Target("decode-0", "decode", "", f"http://127.0.0.1:{port}/metrics")
            scraper = Scraper(lambda: [target], fresh_s=0.3)
            await asyncio.gather(*(scraper.scrape() for _ in range(20)))
            assert asked == 1
            await asyncio.sleep(0.35)
            await scraper.scrape()
            assert asked == 2
            await scraper.close()

    run(main())


def test_the_loop_goes_on_while_a_large_page_is_read() -> None:
    """Deaths are noticed by the same loop: reading pages must not hold it."""
    large = answering(b"".join(b'x{i="%d"} 1\n' % number for number in range(60_000)))

    async def main() -> float:
        longest, last = 0.0, time.monotonic()
        async with serving(large) as port:
            target = Target("decode-0", "decode", "", f"http://127.0.0.1:{port}/metrics")
            scraper = Scraper(lambda: [target], timeout_s=5.0)
            task = asyncio.create_task(scraper.scrape())
            while not task.done():
                await asyncio.sleep(0.005)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            assert (await task).results[0].page is not None
            await scraper.close()
        return longest

    assert run(main()) < 0.25


def test_only_running_processes_with_a_page_are_asked() -> None:
    states = [
        state("frontend", ports={"http": 8000, "stream": 1}),
        state("decode-0", ports={"system": 7001, "rpc": 7002}),
        state("decode-1", ports={"system": 7003}, pid=None, state=State.BACKOFF),
        state("helper-0", ports={}),
    ]
    found = targets(plan(), states, "10.0.0.7")
    assert [(target.worker, target.gpu, target.url) for target in found] == [
        ("frontend", "", "http://10.0.0.7:8000/metrics"),
        ("decode-0", "0", "http://127.0.0.1:7001/metrics"),
    ]
