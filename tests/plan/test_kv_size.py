"""The KV capacity that is expected, against what vLLM said on a real H200."""

from __future__ import annotations

import pytest

from launcher.plan.kv_size import FLOOR, expected_tokens
from launcher.plan.model import Role
from launcher.target.overrides import parse
from launcher.target.resolve import resolve


def expected(target: str, role: Role, *sets: str) -> float | None:
    found = resolve(target, [parse(text, "test") for text in sets]).target
    return expected_tokens(found, role, dict(found.workers.items())[role])


def test_the_measured_figure() -> None:
    """vLLM 0.23.0, 120b in fp8, context 131072, batches of 32768: 2,657,749 tokens in 57.1 GiB."""
    fixed = f"engine.args.kv-cache-memory-bytes={int(57.1 * 2**30)}"
    found = expected("h200-agg", Role.AGGREGATED, fixed)
    assert found == pytest.approx(2_657_749, rel=0.001)


def test_the_measured_figure_from_the_gpu() -> None:
    """Weights and overhead are subtracted from the share of the GPU: some percent off at most."""
    assert expected("h200-agg", Role.AGGREGATED) == pytest.approx(2_657_749, rel=0.03)


def test_without_the_hybrid_manager_it_is_below_the_floor() -> None:
    whole = expected("h200-agg", Role.AGGREGATED)
    halved = expected("h200-agg", Role.AGGREGATED, "engine.args.disable-hybrid-kv-cache-manager=true")
    assert whole is not None
    assert halved is not None
    assert halved < whole * FLOOR


def test_bf16_and_sizes_of_vllm() -> None:
    fp8 = expected("h200-agg", Role.AGGREGATED, "engine.args.kv-cache-memory-bytes=32G")
    bf16 = expected("h200-agg", Role.AGGREGATED, "engine.args.kv-cache-memory-bytes=32G", "kv.dtype=auto")
    small = expected("h200-agg", Role.AGGREGATED, "engine.args.kv-cache-memory-bytes=32g")
    assert fp8 is not None
    assert bf16 == pytest.approx(fp8 / 2)
    assert small == pytest.approx(fp8 * 10**9 / 2**30)


@pytest.mark.parametrize(
    ("target", "role", "sets"),
    [
        ("sim", Role.PREFILL, ()),
        ("gb200-trtllm-agg", Role.AGGREGATED, ()),
        ("h200-agg", Role.AGGREGATED, ("model.id=other/model",)),
        ("h200-agg", Role.AGGREGATED, ("engine.args.gpu-memory-utilization=0.3",)),
        ("h200-agg", Role.AGGREGATED, ("engine.args.kv-cache-memory-bytes=lots",)),
    ],
)
def test_where_nothing_is_known(target: str, role: Role, sets: tuple[str, ...]) -> None:
    assert expected(target, role, *sets) is None
