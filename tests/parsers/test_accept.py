"""The harness must be able to say no; every supported release must take the recipes' command lines."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.parsers.vllm_flags import VLLM_OF_DYNAMO, check_vllm_flags, engine_args

HERE = Path(__file__).parent

OTHER_RELEASES = ("1.3.1", "1.4.2")

FRONTEND = "--router-mode kv --router-kv-events --kv-cache-block-size 64 --http-host 0.0.0.0 --http-port 8000"
MOCKER = "--model-path /model --model-name openai/gpt-oss-120b --disaggregation-mode prefill --block-size 64"
TRTLLM = (
    "--model-path /model --served-model-name openai/gpt-oss-120b --extra-engine-args /engine.yaml"
    " --dyn-reasoning-parser gpt_oss --dyn-tool-call-parser harmony --disaggregation-mode decode"
)
VLLM_COMMON = (
    "--model openai/gpt-oss-120b --served-model-name openai/gpt-oss-120b --trust-remote-code"
    " --quantization mxfp4 --kv-cache-dtype fp8 --max-model-len 131072 --gpu-memory-utilization 0.9"
    " --tensor-parallel-size 1 --max-num-batched-tokens 32768 --enable-chunked-prefill"
    " --enable-prefix-caching --async-scheduling --enable-flashinfer-autotune --block-size 64"
    " --no-disable-hybrid-kv-cache-manager --moe-backend flashinfer_cutlass"
)
EVENTS = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "topic": "kv-events",
    "endpoint": "tcp://*:20080",
}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cuda"}
OFFLOAD = {
    "kv_connector": "SimpleCPUOffloadConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 107374182400},
}
EAGLE3 = {"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3-v3", "num_speculative_tokens": 3}
COMPILATION = {
    "pass_config": {"fuse_allreduce_rms": True, "eliminate_noops": True},
    "max_cudagraph_capture_size": 1024,
}
DYNAMO_VLLM = "--dyn-reasoning-parser gpt_oss --dyn-tool-call-parser harmony --disaggregation-mode prefill"

GOOD: dict[str, list[str]] = {
    "dynamo.frontend": FRONTEND.split(),
    "dynamo.mocker": MOCKER.split(),
    "dynamo.trtllm": TRTLLM.split(),
    "dynamo.vllm": [*VLLM_COMMON.split(), *DYNAMO_VLLM.split(), "--kv-transfer-config", json.dumps(NIXL)],
}


def question(module: str, argv: Sequence[str], env: dict[str, str] | None = None) -> dict[str, Any]:
    """One entry of the harness's input."""
    return {"module": module, "argv": list(argv), "env": env or {}}


def wrong(module: str, *argv: str) -> dict[str, Any]:
    """A good command line with something wrong at its end."""
    return question(module, [*GOOD[module], *argv])


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "frontend, unknown flag": (wrong("dynamo.frontend", "--no-such-flag", "1"), ["--no-such-flag"]),
    "mocker, unknown flag": (wrong("dynamo.mocker", "--no-such-flag", "1"), ["--no-such-flag"]),
    "trtllm, unknown flag": (wrong("dynamo.trtllm", "--no-such-flag", "1"), ["--no-such-flag"]),
    "frontend, bad choice": (wrong("dynamo.frontend", "--router-mode", "odd"), ["--router-mode", "odd"]),
    "mocker, bad choice": (wrong("dynamo.mocker", "--event-plane", "odd"), ["--event-plane", "odd"]),
    "trtllm, bad choice": (wrong("dynamo.trtllm", "--disaggregation-mode", "odd"), ["--disagg", "odd"]),
    "vllm, bad choice": (wrong("dynamo.vllm", "--dyn-tool-call-parser", "odd"), ["--dyn-tool", "odd"]),
    "frontend, abbreviated": (wrong("dynamo.frontend", "--kv-cache-block", "64"), ["--kv-cache-block"]),
    "mocker, abbreviated": (wrong("dynamo.mocker", "--disaggregation", "agg"), ["--disaggregation"]),
    "trtllm, abbreviated": (wrong("dynamo.trtllm", "--disaggregation", "agg"), ["--disaggregation"]),
    "mocker, rule between flags": (wrong("dynamo.mocker", "--num-workers", "0"), ["must be at least 1"]),
    "frontend, help is not acceptance": (question("dynamo.frontend", ["--help"]), ["exit 0"]),
    "frontend, version is not acceptance": (question("dynamo.frontend", ["--version"]), ["exit 0"]),
    "frontend, bad choice in the environment": (
        question("dynamo.frontend", [], {"DYN_ROUTER_MODE": "odd"}),
        ["DYN_ROUTER_MODE=odd", "--router-mode"],
    ),
    "unknown module": (question("dynamo.sglang", []), ["dynamo.sglang"]),
}


def ask(python: str, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run the harness under ``python``; all questions in one process."""
    process = subprocess.run(
        [python, str(HERE / "accept.py")],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    answers: list[dict[str, Any]] = json.loads(process.stdout)
    assert len(answers) == len(questions)
    return answers


def ask_here(*questions: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the harness under the Python that runs the tests."""
    return ask(sys.executable, questions)


@functools.cache
def python_of(release: str) -> str:
    """The Python of another Dynamo release; skips the test where this machine has none."""
    variable = f"LAUNCHER_TEST_DYNAMO_{release.replace('.', '_')}"
    root = Path(os.environ.get(variable, f"/opt/dyn/{release}"))
    python = root / "bin" / "python" if root.is_dir() else root
    if not python.is_file():
        pytest.skip(f"no Dynamo {release} at {root}; name its environment in {variable}")
    return str(python)


# The harness ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good_answers() -> dict[str, dict[str, Any]]:
    """Answers to one good command line of each module."""
    return dict(zip(GOOD, ask_here(*(question(module, argv) for module, argv in GOOD.items())), strict=True))


@pytest.mark.parametrize("module", GOOD)
def test_a_good_command_line_is_accepted(good_answers: dict[str, dict[str, Any]], module: str) -> None:
    answer = good_answers[module]
    assert answer["accepted"], answer["error"]
    assert answer["parsed"]


def test_parsed_values_are_those_of_the_command_line(good_answers: dict[str, dict[str, Any]]) -> None:
    assert good_answers["dynamo.frontend"]["parsed"]["kv_cache_block_size"] == 64
    assert good_answers["dynamo.mocker"]["parsed"]["disaggregation_mode"] == "prefill"
    assert good_answers["dynamo.trtllm"]["parsed"]["disaggregation_mode"] == "decode"
    assert good_answers["dynamo.vllm"]["parsed"]["disaggregation_mode"] == "prefill"


def test_vllm_flags_are_left_over_and_nothing_else(good_answers: dict[str, dict[str, Any]]) -> None:
    left_over = good_answers["dynamo.vllm"]["left_over"]
    assert left_over == [*VLLM_COMMON.split(), "--kv-transfer-config", json.dumps(NIXL)]


@pytest.fixture(scope="module")
def refusals() -> dict[str, dict[str, Any]]:
    """Answers to everything in ``WRONG``, from one process."""
    return dict(zip(WRONG, ask_here(*(asked for asked, _ in WRONG.values())), strict=True))


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_and_named(refusals: dict[str, dict[str, Any]], case: str) -> None:
    assert not refusals[case]["accepted"]
    for word in WRONG[case][1]:
        assert word in refusals[case]["error"]


def test_what_no_half_of_a_vllm_worker_knows_is_refused_by_the_second() -> None:
    wrong = ["--no-such-flag", "1", "--dyn-reasoning", "gpt_oss", "--max-num-s", "256"]
    (answer,) = ask_here(question("dynamo.vllm", [*GOOD["dynamo.vllm"], *wrong]))
    problems = check_vllm_flags(answer["left_over"], "0.31.0")
    assert len(problems) == 3
    assert "--no-such-flag" in problems[0]
    assert "--dyn-reasoning" in problems[1]
    assert "did you mean --max-num-seqs?" in problems[2]


def test_the_environment_of_one_command_line_does_not_reach_the_next() -> None:
    first, second = ask_here(
        question("dynamo.frontend", [], {"DYN_NAMESPACE": "mine", "DYN_ROUTER_MODE": "kv"}),
        question("dynamo.frontend", []),
    )
    assert (first["parsed"]["namespace"], first["parsed"]["router_mode"]) == ("mine", "kv")
    assert second["parsed"]["namespace"] != "mine"
    assert second["parsed"]["router_mode"] != "kv"


def test_the_mocker_sees_its_namespace_though_it_reads_it_at_import() -> None:
    argv = GOOD["dynamo.mocker"]
    first, second = ask_here(
        question("dynamo.mocker", argv), question("dynamo.mocker", argv, {"DYN_NAMESPACE": "mine"})
    )
    assert first["parsed"]["endpoint"] == "dyn://dynamo.prefill.generate"
    assert second["parsed"]["endpoint"] == "dyn://mine.prefill.generate"


def test_ambient_dynamo_variables_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_ROUTER_MODE", "kv")
    (answer,) = ask_here(question("dynamo.frontend", []))
    assert answer["parsed"]["router_mode"] != "kv"


# vLLM's half ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", sorted(VLLM_OF_DYNAMO.values()))
def test_the_recipes_flags_are_taken_by_every_pinned_vllm(version: str) -> None:
    aggregated = [
        *VLLM_COMMON.split(),
        *("--max-num-seqs", "256", "--kv-transfer-config", json.dumps(OFFLOAD)),
        *("--speculative-config", json.dumps(EAGLE3), "--compilation-config", json.dumps(COMPILATION)),
        *("--kv-events-config", json.dumps(EVENTS)),
    ]
    disaggregated = [*VLLM_COMMON.split(), "--kv-transfer-config", json.dumps(NIXL)]
    assert check_vllm_flags(aggregated, version) == []
    assert check_vllm_flags(disaggregated, version) == []


def test_flags_seen_to_work_on_a_gpu_are_taken() -> None:
    argv = "--load-format dummy --enforce-eager --kv-cache-memory-bytes 8G --max-model-len 8192"
    assert check_vllm_flags(argv.split(), "0.23.0") == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--max-num-seq", "256"], "unknown flag --max-num-seq; did you mean --max-num-seqs?"),
        (["--moe-backend", "flashinfer_cutlas"], "did you mean flashinfer_cutlass?"),
        (["--kv-cache-dtype", "fp9"], "'fp9' is not one of its values"),
        (["--quantization", "mxfp5"], "did you mean mxfp"),
        (["--block-size"], "--block-size lacks its value"),
        (["--block-size", "--enforce-eager"], "--block-size lacks its value"),
        (["--block-size", "sixty-four"], "wants an int"),
        (["--block-size", "0"], "--block-size must be > 0"),
        (["--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization must be <= 1"),
        (["--max-model-len", "128kk"], "wants a number"),
        (["--enforce-eager", "true"], "'true' belongs to no flag"),
        (["--enforce-eager=true"], "takes no value"),
        (["--model", "a", "--model", "b"], "--model is given twice"),
        (["--kv-events-config", "{'publisher': 'zmq'}"], "--kv-events-config is not JSON"),
        (["--kv-events-config", '["zmq"]'], "must be a JSON object"),
        (["--kv-events-config", '{"enable_kv_cache_event": true}'], "did you mean enable_kv_cache_events?"),
        (["--kv-events-config", '{"enable_kv_cache_events": "yes"}'], "must be bool"),
        (
            ["--kv-transfer-config", '{"kv_connector": "NixlConector", "kv_role": "kv_both"}'],
            "did you mean NixlConnector?",
        ),
        (["--kv-transfer-config", '{"kv_connector": "NixlConnector"}'], "kv_connector without kv_role"),
        (["--kv-transfer-config", '{"kv_role": "both"}'], "'both' is not one of its values"),
        (["--speculative-config", '{"method": "eagle4"}'], "did you mean eagle"),
        (["--speculative-config", '{"num_speculative_tokens": 0}'], "must be > 0"),
        (["--speculative-config", '{"num_speculative_tokens": true}'], "must be int"),
        (
            ["--compilation-config", '{"pass_config": {"fuse_allreduce": true}}'],
            "unknown key 'fuse_allreduce'",
        ),
        (["--compilation-config.pass_config.eliminate_noop", "true"], "did you mean eliminate_noops?"),
        (["--block-size.x", "1"], "takes no keys"),
    ],
)
def test_what_vllm_would_refuse_is_refused_once(argv: list[str], words: str) -> None:
    for version in VLLM_OF_DYNAMO.values():
        problems = check_vllm_flags(argv, version)
        assert len(problems) == 1, problems
        assert words in problems[0]


@pytest.mark.parametrize(
    "argv",
    [
        ["-tp", "2", "-sc", json.dumps(EAGLE3)],
        ["--max_num_seqs=256"],
        ["--no-enable-prefix-caching", "--served-model-name", "a", "b", "--enforce-eager"],
        ["--moe-backend", "FLASHINFER-CUTLASS"],
        ["--max-num-batched-tokens", "32k", "--max-model-len", "auto"],
        ["--attention-backend", "flashinfer"],
        ["--compilation-config.pass_config.eliminate_noops", "true", "--compilation-config.mode", "3"],
        [
            "--kv-transfer-config",
            json.dumps({**NIXL, "kv_connector": "Mine", "kv_connector_module_path": "m"}),
        ],
    ],
)
def test_other_spellings_that_vllm_takes_are_taken(argv: list[str]) -> None:
    for version in VLLM_OF_DYNAMO.values():
        assert check_vllm_flags(argv, version) == []


def test_an_unrecorded_version_is_an_error_that_names_the_recorded() -> None:
    with pytest.raises(ValueError, match=r"no record of vLLM 0\.1\.0.*0\.23\.0"):
        engine_args("0.1.0")


def test_records_are_small_and_say_where_they_come_from() -> None:
    for version in VLLM_OF_DYNAMO.values():
        path = HERE.parents[1] / "launcher" / "engines" / "data" / f"vllm-engine-args-{version}.json"
        assert path.stat().st_size < 60_000
        provenance = json.loads(path.read_text(encoding="utf-8"))["provenance"]
        assert provenance["wheel"].startswith(f"vllm-{version}-")
        assert len(provenance["sha256"]) == 64
        assert provenance["not_read"] == []


def test_the_installed_dynamo_pins_the_vllm_on_record() -> None:
    release = importlib.metadata.version("ai-dynamo")
    pins = [line for line in importlib.metadata.requires("ai-dynamo") or [] if line.startswith("vllm[")]
    assert pins
    assert all(f"=={VLLM_OF_DYNAMO[release]};" in pin.replace(" ", "") for pin in pins)


# Other releases ------------------------------------------------------------------------------------


OLD_ROLE = question("dynamo.vllm", ["--is-prefill-worker"])


@functools.cache
def answers_of(release: str) -> list[dict[str, Any]]:
    """What ``release`` says to everything in ``GOOD``, everything in ``WRONG`` and the old role flag."""
    good = [question(module, argv) for module, argv in GOOD.items()]
    return ask(python_of(release), [*good, *(asked for asked, _ in WRONG.values()), OLD_ROLE])


@pytest.mark.compat
@pytest.mark.parametrize("release", OTHER_RELEASES)
def test_every_release_takes_the_same_command_lines(release: str) -> None:
    for module, answer in zip(GOOD, answers_of(release), strict=False):
        assert answer["accepted"], (module, answer["error"])
        assert check_vllm_flags(answer["left_over"], VLLM_OF_DYNAMO[release]) == []


@pytest.mark.compat
@pytest.mark.parametrize("release", OTHER_RELEASES)
def test_every_release_refuses_what_is_wrong(release: str) -> None:
    for case, answer in zip(WRONG, answers_of(release)[len(GOOD) :], strict=False):
        assert not answer["accepted"], case


@pytest.mark.compat
def test_the_old_role_flags_are_known_to_1_3_only() -> None:
    assert answers_of("1.3.1")[-1]["parsed"]["disaggregation_mode"] == "prefill"
    assert check_vllm_flags(answers_of("1.4.2")[-1]["left_over"], "0.26.0")
