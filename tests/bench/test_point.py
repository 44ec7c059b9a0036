"""From records to figures: counts, rates, hits, Little's law, the published figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from launcher.bench import published, stats
from launcher.bench.point import Conditions, load, measure
from launcher.bench.records import Record, is_refusal, parse
from launcher.target.resolve import resolve
from tests.bench.support import record


def conditions(concurrency: int = 4, gpus: int = 2) -> Conditions:
    return Conditions("t", "mocker", True, "http://x", concurrency, gpus, "words")


def parsed(*lines: str) -> list[Record]:
    return list(parse(lines))


def test_a_record_is_read_and_warm_up_left_out() -> None:
    found = parsed(record(3, start=5, latency=2, cached=512), record(0, phase="warmup"), '{"torn')
    assert found == [Record(3, 5.0, 7.0, 0.2, 0.01, 1000, 80, 512)]


REFUSED = "This model's maximum context length is 131072 tokens. However, you requested 140020 tokens"


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (400, REFUSED, True),
        (400, "The prompt is too long for max_seq_len 9000", True),
        (422, "input length exceeds the model's context length", True),
        (500, REFUSED, False),
        (400, "unknown field", False),
        (None, "Connection refused", False),
        (400, "", False),
    ],
)
def test_refusals_are_told_from_errors(code: int | None, text: str, expected: bool) -> None:
    assert is_refusal(code, text) is expected


def test_counts_and_rates() -> None:
    lines = [record(number, start=number * 0.25) for number in range(8)]
    lines.append(record(8, error={"code": 400, "message": REFUSED}))
    lines.append(record(9, error={"code": 500, "message": "no endpoints available"}))
    found = measure(parsed(*lines), conditions())
    assert (found.requests, found.ok, found.refused, found.errors) == (10, 8, 1, 1)
    assert found.error_kinds == {"no endpoints available": 1}
    assert found.duration == pytest.approx(2.75)
    assert found.tok_s == pytest.approx(8 * 80 / 2.75)
    assert found.tok_s_gpu == pytest.approx(found.tok_s / 2)
    assert found.tok_s_user == pytest.approx(100)
    assert found.in_flight == pytest.approx(8 / 2.75)
    assert sum(found.batches["tok_s_gpu"]) * 2 / len(found.batches["tok_s_gpu"]) == pytest.approx(found.tok_s)


def test_left_over_caches_show_in_the_first_requests() -> None:
    ideal = [(1000, 0)] * 8
    cold = measure(parsed(*(record(number, cached=0) for number in range(8))), conditions(), ideal)
    warm = measure(parsed(*(record(number, cached=960) for number in range(8))), conditions(), ideal)
    silent = measure(parsed(*(record(number, cached=None) for number in range(8))), conditions(), ideal)
    assert (cold.clean, warm.clean, silent.clean) == (True, False, None)
    assert warm.first_hit == pytest.approx(0.96)
    assert silent.hit is None


def test_only_what_is_in_flight_at_once_counts_as_first() -> None:
    lines = [record(number, start=number, cached=0 if number < 4 else 900) for number in range(20)]
    assert measure(parsed(*lines), conditions(4), [(1000, 0)] * 20).clean is True


def test_a_run_without_a_good_request_has_figures_too(tmp_path: Path) -> None:
    found = measure(parsed(record(0, error={"code": 500, "message": "x"})), conditions())
    assert found.ok == 0
    assert math.isnan(found.ttft_mean)
    path = tmp_path / "point.json"
    path.write_text(json.dumps(found.to_json()))
    assert "NaN" not in path.read_text()
    again = load(path)
    assert math.isnan(again.ttft_mean)
    assert again.conditions == found.conditions


def test_a_point_survives_the_disk(tmp_path: Path) -> None:
    found = measure(parsed(*(record(number, start=number / 7) for number in range(50))), conditions())
    path = tmp_path / "point.json"
    path.write_text(json.dumps(found.to_json()))
    assert load(path) == found
    path.write_text("{}")
    with pytest.raises(ValueError, match="no result"):
        load(path)


@pytest.mark.parametrize(
    ("target", "word"),
    [("b200-disagg", "+56%"), ("b200-agg", "+28%"), ("h200-disagg", "+12%"), ("h200-agg", "fits")],
)
def test_the_published_figures_are_held_to_littles_law(target: str, word: str) -> None:
    assert word in published.check_published(resolve(target).target)


def test_the_measured_load_is_held_to_it_too() -> None:
    full = measure(parsed(*(record(number, start=number // 4) for number in range(400))), conditions(4))
    half = measure(parsed(*(record(number, start=number / 2) for number in range(400))), conditions(4))
    assert "fits" in published.check_point(full)
    assert "could not keep up" in published.check_point(half)


def test_six_gpus_counted_five_used() -> None:
    note = published.gpu_note(resolve("gb200-trtllm-disagg").target)
    assert "256 x 6" in note
    assert "uses 5" in note
    assert "83%" in note
    assert "--concurrency 1280" in note
    assert "divide by" not in published.gpu_note(resolve("gb200-trtllm-agg").target)
    assert not published.gpu_note(resolve("h200-agg").target)


def test_intervals() -> None:
    means = [10.0, 11.0, 9.0, 10.5, 9.5]
    found = stats.interval(means)
    # Student's t for 4 degrees of freedom is 2.776, the standard error 0.3536.
    assert found.low == pytest.approx(10 - 2.776 * 0.35355, rel=1e-3)
    assert stats.interval([1.0]).low == -math.inf
    assert stats.student(20) == pytest.approx(2.086, rel=2e-3)
    assert stats.student(1e6) == pytest.approx(1.96, rel=1e-3)
    same = stats.difference(means, means[::-1])
    assert same.low < 0 < same.high
    gone = stats.difference(means, [value + 5 for value in means])
    assert gone.low > 0
    assert gone.mean == pytest.approx(5)
    assert stats.difference([1.0, 1.0], [2.0, 2.0]).low == 1.0
    assert stats.batches([1, 2, 3, 4, 5, 6], 3) == [1.5, 3.5, 5.5]
    assert stats.quantile([1, 2, 3, 4], 0.5) == 2.5


def test_the_chat_templates_own_words_may_be_cached() -> None:
    # 600 tokens of prompt, 119 of template: one block of 64 is in every cache, whoever asked first.
    lines = [record(number, length=719, cached=64) for number in range(4)]
    assert measure(parsed(*lines), conditions(), [(600, 0)] * 4).clean is True
    lines = [record(number, length=719, cached=640) for number in range(4)]
    assert measure(parsed(*lines), conditions(), [(600, 0)] * 4).clean is False
