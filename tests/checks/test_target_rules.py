"""Every rule over a target, seen to speak and to stay silent."""

from __future__ import annotations

import pytest

from launcher.checks import target as rules
from launcher.checks.base import background_of
from launcher.findings import Finding
from launcher.target import overrides
from launcher.target.catalog import names
from launcher.target.resolve import resolve
from tests.checks.target_cases import AGG, CASES, DISAGG, ERROR, SMALL, TRT, TRT_AGG, Case

KNOWN = {
    "b200-agg": {"structured-output"},
    "b200-disagg": {"structured-output"},
    "h200-agg": {"structured-output"},
    "h200-disagg": {"structured-output"},
    "h200-1gpu-agg": {"structured-output"},
    "h200-1gpu-disagg": set(),
    "gb200-trtllm-agg": {"trt-slots", "trt-gb200-crash"},
    "gb200-trtllm-disagg": {"node-small", "trt-no-effect", "trt-slots", "trt-prompt-gap", "workload-gpus"},
    "sim": set(),
}
"""What the rules have to say about the recipes as they are: no error, and what is known about each."""


def said(target: str, *sets: str) -> list[Finding]:
    """What the rules say of a target with changes, as `--set` takes them."""
    found = list(rules.check(resolve(target, [overrides.parse(text, "--set") for text in sets])))
    assert "check-failed" not in {finding.code for finding in found}, found
    return found


@pytest.mark.parametrize("wrong", CASES, ids=lambda wrong: wrong.label)
def test_speaks(wrong: Case) -> None:
    found = [finding for finding in said(wrong.target, *wrong.sets) if finding.code == wrong.code]
    assert found, {finding.code for finding in said(wrong.target, *wrong.sets)}
    finding = next((finding for finding in found if wrong.says in finding.what), found[0])
    assert wrong.says in finding.what
    assert wrong.fix in finding.fix
    assert finding.severity is wrong.severity
    assert finding.why
    assert finding.where
    assert "None" not in finding.line()


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_recipes_as_they_are(name: str) -> None:
    found = said(name)
    assert {finding.code for finding in found} == KNOWN[name]
    assert all(finding.severity is not ERROR for finding in found)


def test_every_target_is_known_here() -> None:
    assert set(KNOWN) == set(names())


def test_every_code_is_seen_and_has_a_background() -> None:
    declared = [code for check in rules.CHECKS for code in check.codes]
    assert len(declared) == len(set(declared))
    # engine-unknown: the schema lets only known engines through, so it is seen below.
    assert {wrong.code for wrong in CASES} == set(declared) - {"engine-unknown"}
    for code in declared:
        text = background_of(rules.CHECKS, code)
        assert text
        assert len(text) > 60, code


def test_an_engine_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.engines import registry

    assert "engine-unknown" not in {finding.code for finding in said(AGG)}
    monkeypatch.delitem(registry.ENGINES, "vllm")
    found = [finding for finding in rules.check(resolve(AGG)) if finding.code == "engine-unknown"]
    assert found
    assert "did you mean" in found[0].fix or "known:" in found[0].fix


@pytest.mark.parametrize(
    ("target", "sets", "silent"),
    [
        (AGG, ["kv.events=false", "router.approximate=true"], "kv-events-off"),
        (AGG, ["kv.events=false", "router.mode=round-robin"], "kv-events-off"),
        (DISAGG, ["kv.transfer.role=by-role"], "kv-transfer-role"),
        (DISAGG, ["frontend.args.kv-cache-block-size=64"], "block-size"),
        (AGG, ["engine.args.max-model-len=131072"], "context-model"),
        (
            AGG,
            ["engine.args.max-model-len=200000", "engine.env.VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"],
            "context-model",
        ),
        (AGG, ["speculative.method=ngram", "model.draft=null"], "draft-missing"),
        (TRT, ["kv.transfer.max_tokens_in_buffer=9216"], "trt-buffer"),
        (TRT, ["kv.transfer.max_tokens_in_buffer=9024"], "trt-buffer"),
        (TRT, ["engine.env.OVERRIDE_QUANT_ALGO=w4a8_mxfp4_mxfp8"], "trt-quant-value"),
        (TRT, ["hardware.gpu=[H200]", "engine.env.OVERRIDE_QUANT_ALGO=W4A16_MXFP4"], "trt-quant-gpu"),
        (
            TRT,
            ["engine.config.max_num_tokens=4096", "engine.config.enable_chunked_prefill=true"],
            "trt-num-tokens",
        ),
        (TRT, ["engine.env.UCX_TLS=^tcp"], "trt-ucx-tls"),
        (TRT, ["engine.env.UCX_TLS=cuda_ipc,cuda_copy,sm"], "trt-ucx-tls"),
        (TRT, ["engine.env.TRTLLM_USE_UCX_KVCACHE=1"], "trt-transport"),
        (TRT, ["workers.prefill.config.max_seq_len=11000"], "trt-prompt-gap"),
        (TRT_AGG, ["workload.concurrency=3200"], "trt-slots"),
        (TRT_AGG, ["engine.args.expert-parallel-size=2"], "trt-experts"),
        (TRT_AGG, ["engine.env.TRTLLM_FORCE_COMM_METHOD=ALLGATHER"], "trt-gb200-crash"),
        (SMALL, ["engine.args.gpu-memory-utilization=0.5"], "gpu-share"),
        (AGG, ["network.http_port=0", "network.admin_port=0"], "port-clash"),
    ],
)
def test_the_near_side(target: str, sets: list[str], silent: str) -> None:
    assert silent not in {finding.code for finding in said(target, *sets)}


def test_a_simulated_run_of_any_target_has_no_error() -> None:
    for name in names():
        for engine in ("mocker", "echo"):
            found = [finding for finding in said(name, f"engine.kind={engine}") if finding.severity is ERROR]
            assert not found, (name, engine, found)


def test_findings_name_the_line_that_set_the_value() -> None:
    owned = next(finding for finding in said(TRT) if finding.code == "trt-prompt-gap")
    assert owned.where.startswith("configs/targets/gb200-trtllm-disagg.yaml:")
    changed = next(
        finding
        for finding in said(TRT, "kv.transfer.max_tokens_in_buffer=9210")
        if finding.code == "trt-buffer"
    )
    assert changed.where == "--set kv.transfer.max_tokens_in_buffer"
