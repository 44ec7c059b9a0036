"""Inputs that cost public users hours (`pain.md`), with their right answer: those that are answered before a start."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from launcher.checks.base import run_checks
from launcher.checks.machine import CHECKS as MACHINE
from launcher.cli import main
from launcher.download import harmony
from launcher.findings import Severity
from tests.checks.subjects import codes, machine_for, plan_of, resolved
from tests.support.plans import planned

VOCABULARY = Path(__file__).resolve().parents[3] / "shared" / "harmony" / harmony.FILE


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A command with an empty model cache and no network: code and standard error."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("TIKTOKEN_ENCODINGS_BASE", raising=False)

    def call(*argv: str) -> tuple[int, str]:
        return main(list(argv)), capsys.readouterr().err

    return call


def test_1_kv_routing_over_workers_without_events(run: Any) -> None:
    for target in ("h200-agg", "h200-disagg", "b200-agg"):
        sets = ("plan", "--target", target, "--machine", "H200:8", "--set", "kv.events=false")
        code, err = run(*sets)
        assert code == 2
        assert "error[kv-events-off]" in err
        assert "--kv-events-config" in err
        assert run(*sets, "--set", "router.approximate=true")[0] == 0


def test_2_block_sizes_that_differ(run: Any) -> None:
    code, err = run("--target", "h200-disagg", "--set", "workers.prefill.args.block-size=16")
    assert code == 2
    assert "workers.prefill.args.block-size is 16, kv.block_size is 64" in err
    code, err = run("--target", "sim", "--set", "frontend.args.kv-cache-block-size=32")
    assert code == 2
    assert "error[block-size]" in err


def test_3_an_internal_port_that_is_held_is_not_used() -> None:
    with planned("sim") as first:
        ports = sorted(port for process in first.plan.processes for port in process.ports.values())
        block = min(port for port in ports if port >= first.planner.target.network.base_port)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("0.0.0.0", block))
        except OSError:
            pytest.skip(f"port {block} is held by something else here")
        sock.listen()
        with planned("sim") as second:
            taken = {port for process in second.plan.processes for port in process.ports.values()}
    assert block not in taken


def test_3_a_public_port_that_is_held_names_who_holds_it(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, err = run(
            "--target", "sim", "--http-host", "127.0.0.1", "--http-port", str(port), "--admin-port", "0"
        )
    assert code == 3
    assert f"port {port} of the API is held by pid {os.getpid()}" in err


def test_9_a_vocabulary_of_the_wrong_hash(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / harmony.FILE).write_bytes(b"x" * harmony.SIZE)
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
    code, err = run("--target", "sim", "--engine", "echo", "--http-port", "0", "--admin-port", "0")
    assert code == 3
    assert "has SHA-256" in err
    assert f"expected SHA-256 {harmony.SHA256}" in err
    # The folder's file instead of the folder.
    if VOCABULARY.exists():
        shutil.copy(VOCABULARY, folder / harmony.FILE)
        monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder / harmony.FILE))
        code, err = run("--target", "sim", "--engine", "echo", "--http-port", "0", "--admin-port", "0")
        assert code == 3
        assert f"TIKTOKEN_ENCODINGS_BASE={folder}" in err


def test_10_two_distinct_errors_with_the_nearest_right_value(run: Any) -> None:
    trt = ("plan", "--target", "gb200-trtllm-disagg", "--machine", "B200:8")
    code, err = run(*trt, "--set", "kv.transfer.max_tokens_in_buffer=9210")
    assert code == 2
    assert "error[trt-buffer]: max_tokens_in_buffer is 9210" in err
    assert "--set kv.transfer.max_tokens_in_buffer=9216" in err
    code, err = run(*trt, "--set", "hardware.gpu=[H200]")
    assert code == 2
    assert "error[trt-quant-gpu]: OVERRIDE_QUANT_ALGO=W4A8_MXFP4_MXFP8 in a target for H200" in err
    assert "OVERRIDE_QUANT_ALGO=W4A16_MXFP4" in err
    both = run(*trt, "--set", "hardware.gpu=[H200]", "--set", "kv.transfer.max_tokens_in_buffer=9210")[1]
    assert both.count("error[") == 2


def test_10_the_override_on_a_machine_with_h200() -> None:
    subject = resolved("gb200-trtllm-disagg")
    machine = machine_for("h200-disagg")
    plan, _ = plan_of(subject, machine)
    found = list(run_checks(MACHINE, subject.target, plan, machine))
    assert {"gpu-format", "gpu-kind"} <= codes(found)


def test_more_gpus_given_as_uuids() -> None:
    machine = machine_for("h200-disagg")
    uuids = ",".join(gpu.uuid for gpu in machine.visible)
    machine = machine_for("h200-disagg", visible_by=f"CUDA_VISIBLE_DEVICES={uuids}")
    subject = resolved("h200-disagg")
    plan, _ = plan_of(subject, machine)
    assert plan.process("prefill-0").env["CUDA_VISIBLE_DEVICES"].split(",")[0] == machine.visible[0].uuid
    found = [
        finding
        for finding in run_checks(MACHINE, subject.target, plan, machine)
        if finding.severity is Severity.ERROR
    ]
    assert not found


@pytest.mark.parametrize(("flag", "release"), [("is-prefill-worker", "1.3"), ("is-decode-worker", "1.3")])
def test_more_role_flags_of_another_release(run: Any, flag: str, release: str) -> None:
    code, err = run(
        "plan", "--target", "h200-disagg", "--machine", "H200", "--set", f"workers.prefill.args.{flag}=true"
    )
    assert code == 2
    assert f"Dynamo {release} alone knows this flag" in err
