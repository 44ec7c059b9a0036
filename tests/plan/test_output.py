"""The plan for people and programs, and what making it must not cost."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.plan.model import MASK, is_secret
from launcher.plan.output import bash, table
from tests.support.plans import TARGETS, plan

HEAVY = (
    "dynamo",
    "torch",
    "vllm",
    "tensorrt_llm",
    "nixl",
    "transformers",
    "aiohttp",
    "rich",
    "huggingface_hub",
)


def test_the_json_contract() -> None:
    found = json.loads(json.dumps(plan("h200-disagg").to_json()))
    assert {"target", "engine", "processes", "deadlines"} <= set(found)
    assert [process["name"] for process in found["processes"]][:3] == ["events", "frontend", "prefill-0"]
    for process in found["processes"]:
        assert {"name", "role", "argv", "env", "gpus", "ports", "files"} <= set(process)
        assert all(isinstance(word, str) for word in process["argv"])
        assert all(isinstance(port, int) for port in process["ports"].values())


def test_secrets_are_masked_wherever_the_plan_is_shown() -> None:
    found = plan("h200-agg", "engine.env.HF_TOKEN=hf_verysecret", "engine.env.MY_API_KEY=alsosecret")
    for text in (json.dumps(found.to_json()), table.render(found), bash.render(found)):
        assert "verysecret" not in text
        assert "alsosecret" not in text
    assert MASK in table.render(found)
    assert found.process("aggregated-0").env["HF_TOKEN"] == "hf_verysecret"
    assert "${HF_TOKEN:?not set}" in bash.render(found)


@pytest.mark.parametrize(
    ("name", "secret"),
    [("HF_TOKEN", True), ("AWS_SECRET_ACCESS_KEY", True), ("DB_PASSWORD", True), ("VLLM_API_KEY", True),
     ("MAX_TOKENS", False), ("DYN_TOKENIZER", False), ("CUDA_VISIBLE_DEVICES", False)],
)  # fmt: skip
def test_what_counts_as_a_secret(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@pytest.mark.parametrize("target", TARGETS)
def test_the_script_is_valid_bash(target: str) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=bash.render(plan(target)), text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_signal_while_the_script_stops_leaves_nothing(tmp_path: Path) -> None:
    """Its own stop with a process in it that takes a while to end."""
    slow = "trap 'sleep 1; exit 0' TERM; touch \"$RUN/up\"; while :; do sleep 0.05; done"
    head = bash.HEAD.format(target="sim", engine="mocker", hash="0")
    script = f"{head}\nexport RUN\nbash -c {shlex.quote(slow)} &\npids+=($!)\nwait\n"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    shell = subprocess.Popen(["bash", "-c", script], env=environ)
    until = time.monotonic() + 40
    while not list(tmp_path.glob("sim.*/up")):
        assert time.monotonic() < until
        time.sleep(0.02)
    shell.terminate()
    time.sleep(0.3)
    shell.terminate()
    assert shell.wait(40) == 0
    assert not list(tmp_path.iterdir())


def test_equal_plans_have_equal_hashes_wherever_they_run(state: Path) -> None:
    first = plan("h200-disagg", state_dir=f"{state}/a", base_port="24000")
    second = plan("h200-disagg", state_dir=f"{state}/b", base_port="24000")
    assert first.run_dir != second.run_dir
    assert first.hash() == second.hash()
    assert plan("h200-disagg", "kv.block_size=32", base_port="24000").hash() != first.hash()


@pytest.mark.parametrize("form", ["table", "json", "bash"])
def test_a_dry_run_imports_nothing_heavy_and_starts_nothing(form: str) -> None:
    code = (
        "import sys, subprocess, os\n"
        "def refuse(*a, **k): raise AssertionError('started a process')\n"
        "subprocess.Popen.__init__ = refuse; os.fork = refuse; os.posix_spawn = refuse\n"
        "from launcher.cli import main\n"
        f"code = main(['--target', 'h200-disagg', '--machine', 'H200:8', '--dry-run', '--output', '{form}'])\n"
        f"heavy = sorted(name for name in {HEAVY!r} if name in sys.modules)\n"
        "print('HEAVY', heavy, code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "HEAVY [] 0", done.stderr


def test_what_starts_the_children_imports_nothing_that_only_watches_them() -> None:
    code = (
        "import sys\n"
        "import launcher.cli.serve, launcher.serve\n"
        "print(sorted({'aiohttp', 'prometheus_client', 'rich', 'launcher.witness'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_table_shows_commands_deadlines_and_files() -> None:
    text = table.render(plan("gb200-trtllm-disagg"))
    assert "$ " in text
    assert "--extra-engine-args" in text
    assert "max_tokens_in_buffer: 9216" in text
    assert "SIGTERM to prefill, at most 96 s" in text
