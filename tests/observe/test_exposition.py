"""Pages of many processes become one page that the official parser takes, whatever the processes say."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from launcher.observe.exposition import NotMetrics, Page, merge, parse
from tests.observe.support import samples, value

ONE = """# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{model="m"} 3
# HELP seconds Time.
# TYPE seconds histogram
seconds_bucket{le="1"} 1
seconds_bucket{le="+Inf"} 2
seconds_sum 1.5
seconds_count 2
"""


def merged(*pages: str, **labels: str) -> str:
    """The pages as of the workers w0, w1, ..."""
    return merge([({"worker": f"w{n}", **labels}, parse(page)) for n, page in enumerate(pages)]).text


def test_a_family_of_two_processes_is_one_group() -> None:
    text = merged(ONE, ONE)
    assert text.count("# HELP requests_total") == text.count("# TYPE requests_total") == 1
    lines = [line for line in text.splitlines() if line.startswith("seconds")]
    start = text.splitlines().index(lines[0])
    assert text.splitlines()[start : start + len(lines)] == lines
    assert value(text, "requests_total", worker="w1", model="m") == 3
    assert value(text, "seconds_bucket", worker="w0", le="+Inf") == 2


def test_a_label_that_would_be_hidden_is_exported_as_prometheus_does_it() -> None:
    page = 'busy{worker="0"} 1\nbusy{worker="1",exported_worker="x"} 2\n'
    text = merged(page)
    assert value(text, "busy", worker="w0", exported_worker="0") == 1
    assert value(text, "busy", worker="w0", exported_worker="x", exported_exported_worker="1") == 2


def test_a_family_with_another_type_is_left_out_and_told() -> None:
    first, second = parse("# TYPE x counter\nx 1\n"), parse("# TYPE x gauge\nx 2\n# TYPE y gauge\ny 3\n")
    whole = merge([({"worker": "a"}, first), ({"worker": "b"}, second)])
    assert whole.dropped == {1: ["x"]}
    assert value(whole.text, "x_total", worker="a") == 1
    assert value(whole.text, "y", worker="b") == 3


def test_a_name_that_belongs_to_anothers_histogram_is_left_out() -> None:
    first, second = parse(ONE), parse("# TYPE seconds_sum gauge\nseconds_sum 9\n")
    whole = merge([({"worker": "a"}, first), ({"worker": "b"}, second)])
    assert whole.dropped == {1: ["seconds_sum"]}
    samples(whole.text)


def test_a_child_cannot_speak_for_the_launcher() -> None:
    whole = merge([({"worker": "a"}, parse("launcher_ready 1\nup 1\n"))])
    assert whole.dropped == {0: ["launcher_ready"]}
    assert "launcher_ready" not in whole.text


@pytest.mark.parametrize(
    "line",
    [
        "x{a=b} 1",
        'x{a="b} 1',
        'x{a="b"c="d"} 1',
        'x{a="\\q"} 1',
        'x{a="1",a="2"} 1',
        'x{1a="b"} 1',
        "1x 1",
        "x one",
        "x",
        "x 1 2 3",
        "x 1_000",
        "x{} {} 1",
        "{} 1",
        "<html>",
        "x{",
    ],
)
def test_a_bad_line_costs_only_itself(line: str) -> None:
    page = parse(f"good 1\n{line}\nalso 2\n")
    assert (page.lines, page.bad) == (2, 1)
    assert samples(merge([({"worker": "a"}, page)]).text)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x 1", 1.0),
        ("x  1", 1.0),
        ("x\t1", 1.0),
        ("x{} 1", 1.0),
        ('x{ a = "b" , } 1', 1.0),
        ('x{a="b",} 1', 1.0),
        ('x{a="b"}1', 1.0),
        ('x{a="}"} 1', 1.0),
        ('x{a="\\"} 2"} 1', 1.0),
        ('x{a="\\\\"} 1', 1.0),
        ('x{a="# b"} 1', 1.0),
        ("x 1 1700000000000", 1.0),
        ("x +1.5e-3", 0.0015),
        ("x .5", 0.5),
        ("x +Inf", math.inf),
        ("x -Inf", -math.inf),
        ("x 1\r", 1.0),
    ],
)
def test_what_the_format_allows_is_understood(line: str, expected: float) -> None:
    page = parse(line + "\n")
    assert (page.lines, page.bad) == (1, 0)
    assert value(merge([({"worker": "w"}, page)]).text, "x", worker="w") == expected


def test_a_series_given_twice_counts_once() -> None:
    page = parse("x 1\nx 2\n")
    assert (page.lines, page.bad) == (1, 1)


def test_the_counters_of_an_openmetrics_page_keep_their_type() -> None:
    text = merged("# TYPE jobs counter\n# HELP jobs Jobs.\njobs_total 5\njobs_created 1.7e9\n# EOF\n")
    assert "# TYPE jobs_total counter" in text
    assert "# HELP jobs_total Jobs." in text
    assert value(text, "jobs_total", worker="w0") == 5


def test_a_family_that_returns_later_joins_its_group() -> None:
    text = merged('# TYPE a gauge\na{i="1"} 1\n# TYPE b gauge\nb 1\na{i="2"} 2\n')
    assert text.index('a{worker="w0",i="2"}') < text.index("# TYPE b")


def test_help_is_taken_from_whoever_has_it_and_made_valid() -> None:
    text = merged("# TYPE x gauge\nx 1\n", "# HELP x A path like C:\\dir.\n# TYPE x gauge\nx 2\n")
    assert "# HELP x A path like C:\\\\dir." in text


def test_label_values_are_escaped() -> None:
    text = merge([({"worker": 'a"b\\c\nd'}, parse("x 1\n"))]).text
    assert value(text, "x", worker='a"b\\c\nd') == 1


@pytest.mark.parametrize("page", ["<html><body>hello</body></html>", "nonsense", "\x00\x01\x02", "{}"])
def test_nonsense_is_told_apart_from_metrics(page: str) -> None:
    with pytest.raises(NotMetrics, match="not a metrics page"):
        parse(page)


@pytest.mark.parametrize("page", ["", "\n\n", "# just a comment\n", "# TYPE x gauge\n"])
def test_an_empty_page_is_a_page(page: str) -> None:
    assert parse(page).lines == 0
    assert merge([({"worker": "a"}, parse(page))]).text == ""


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=40),
            st.sampled_from(
                ["# TYPE a counter", "# TYPE a histogram", "# TYPE a_sum gauge", "# HELP a \\x", "a_bucket 1"]
            ),
            st.from_regex(r'\A[ab]_?(sum|count|total)?(\{(worker|x)="[^"\n\\]{0,3}"\})? -?[0-9]{1,3}\Z'),
        ),
        max_size=12,
    )
)
@example(["# TYPE a counter", "a_total 1", "a 2"])
def test_whatever_two_processes_say_the_whole_is_valid(lines: list[str]) -> None:
    def page(lines: list[str]) -> Page:
        try:
            return parse("\n".join(lines))
        except NotMetrics:
            return Page({}, 0, 0)

    samples(merge([({"worker": "a"}, page(lines)), ({"worker": "b"}, page(lines[::-1]))]).text)


def test_real_pages_survive() -> None:
    """A capture of a real frontend's and workers' pages goes through unchanged, but for the labels."""
    text = (Path(__file__).parent / "data" / "sim_metrics.txt").read_text()
    page = parse(text)
    assert page.bad == 0
    before, after = samples(text), samples(merge([({"cell": "1"}, page)]).text)
    children = {(name, labels) for name, labels in before if not name.startswith("launcher_")}
    assert len(children) > 200
    assert {(name, tuple(pair for pair in labels if pair[0] != "cell")) for name, labels in after} == children


def test_nine_processes_of_500_lines_take_well_under_200_ms() -> None:
    families = [
        f"# TYPE family_{n} gauge\n"
        + "".join(f'family_{n}{{namespace="dynamo",worker_id="w",le="{i}"}} {i * n}\n' for i in range(25))
        for n in range(20)
    ]
    pages = ["".join(families).replace('"w"', f'"{n}"') for n in range(9)]
    best = math.inf
    for _ in range(3):
        began = time.perf_counter()
        text = merged(*pages)
        best = min(best, time.perf_counter() - began)
    assert text.count("\n") == 9 * 500 + 20
    assert best < 0.15, f"{best * 1000:.0f} ms"
