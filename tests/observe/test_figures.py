"""Rates and latencies from two looks at the children's metrics."""

from __future__ import annotations

from typing import Any

from launcher.observe.exposition import Page, merge, parse
from launcher.observe.figures import Figures
from launcher.observe.scrape import Result, Scrape, Target

FRONTEND = """# TYPE dynamo_frontend_requests_total counter
dynamo_frontend_requests_total{{model="m",status="success"}} {requests}
dynamo_frontend_requests_total{{model="m",status="error"}} 0
# TYPE dynamo_frontend_output_tokens_total counter
dynamo_frontend_output_tokens_total{{model="m"}} {tokens}
# TYPE dynamo_frontend_time_to_first_token_seconds histogram
dynamo_frontend_time_to_first_token_seconds_bucket{{le="+Inf"}} {requests}
dynamo_frontend_time_to_first_token_seconds_sum {ttft}
dynamo_frontend_time_to_first_token_seconds_count {requests}
# TYPE dynamo_frontend_inflight_requests gauge
dynamo_frontend_inflight_requests{{model="m"}} 3
"""


def scrape(at: float, requests: int, tokens: int, ttft: float, worker: str = "") -> Scrape:
    pages: list[tuple[Target, Page]] = [
        (
            Target("frontend", "frontend", "", ""),
            parse(FRONTEND.format(requests=requests, tokens=tokens, ttft=ttft)),
        ),
        (Target("decode-0", "decode", "0", ""), parse(worker)),
    ]
    return Scrape(tuple(Result(target, 0.0, page) for target, page in pages), merge([]), at)


def figures(*scrapes: Scrape) -> dict[str, Any] | None:
    found = Figures()
    for each in scrapes:
        found.add(each)
    return found.to_json()


def test_one_look_has_no_rates() -> None:
    assert figures(scrape(1.0, 10, 100, 1.0)) is None


def test_rates_and_means_are_of_the_time_between() -> None:
    assert figures(scrape(1.0, 10, 100, 1.0), scrape(3.0, 30, 900, 2.0)) == {
        "window_s": 2.0,
        "requests_per_s": 10.0,
        "output_tokens_per_s": 400.0,
        "ttft_s": 0.05,
        "itl_s": None,
        "in_flight": 3,
    }


def test_the_window_moves_on() -> None:
    found = figures(*(scrape(float(at), 0 if at < 50 else 100 * (at - 50), 0, 0.0) for at in range(70)))
    assert found is not None
    assert found["requests_per_s"] == 100.0
    assert 10 <= found["window_s"] <= 11


def test_another_frontend_begins_anew() -> None:
    assert figures(scrape(1.0, 100, 1000, 1.0), scrape(2.0, 1, 10, 0.1)) is None


def test_another_frontend_with_as_many_requests_begins_anew() -> None:
    looks = [scrape(1.0, 2, 20, 1.0), scrape(2.0, 3, 30, 0.1), scrape(3.0, 4, 40, 0.2)]
    assert figures(*looks[:2]) is None
    found = figures(*looks)
    assert found is not None
    assert found["ttft_s"] == 0.1


def test_the_same_scrape_twice_counts_once() -> None:
    one = scrape(1.0, 10, 100, 1.0)
    assert figures(one, one) is None


def test_an_older_frontend_counts_tokens_when_requests_end() -> None:
    old = [
        Scrape(
            tuple(
                Result(each.target, 0.0, parse(f"dynamo_frontend_output_sequence_tokens_sum {tokens}\n"))
                for each in scrape(at, 0, 0, 0.0).results[:1]
            ),
            merge([]),
            at,
        )
        for at, tokens in ((1.0, 10), (2.0, 110))
    ]
    found = figures(*old)
    assert found is not None
    assert found["output_tokens_per_s"] == 100.0


def test_workers_say_how_full_they_are() -> None:
    found = Figures()
    found.add(
        scrape(1.0, 0, 0, 0.0, 'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:num_requests_running 7\n')
    )
    assert found.workers == {"decode-0": {"kv_usage": 0.25, "running": 7.0}}
