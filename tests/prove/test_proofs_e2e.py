"""Ready by proof on real processes: Dynamo's frontend, router and parsers over echo and mocker workers."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main
from tests.support.runs import ROOT, Run

VOCABULARY = os.environ.get("TIKTOKEN_ENCODINGS_BASE", str(ROOT.parent / "shared" / "harmony"))

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not (Path(VOCABULARY) / "o200k_base.tiktoken").is_file(), reason="needs the o200k vocabulary"
    ),
]


def echo(state: Path, *options: str, target: str = "sim", **changes: Any) -> Run:
    """A run with echo workers; `changes`: process (underscores for dashes) to what the driver does to it."""
    run = Run(target, "--engine", "echo", *options, state=state, TIKTOKEN_ENCODINGS_BASE=VOCABULARY)
    if changes:
        spec = json.dumps({name.replace("_", "-"): change for name, change in changes.items()})
        run.argv[1:3] = [str(Path(__file__).with_name("driver.py")), spec]
    return run


def proofs(run: Run) -> dict[str, dict[str, Any]]:
    return {proof["name"]: proof for proof in run.status()["proofs"]}


def until(run: Run, condition: Any, what: str, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}\n{run.log}"
        time.sleep(0.25)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    import shutil
    import tempfile

    state = Path(tempfile.mkdtemp(prefix="lt-"))
    with echo(state) as run:
        yield run.ready()
    shutil.rmtree(state, ignore_errors=True)


def test_everything_is_proven_before_ready(running: Run) -> None:
    found = proofs(running)
    assert {name: proof["outcome"] for name, proof in found.items()} == {
        "completion": "passed",
        "tool call": "passed",
        "KV routing": "passed",
        "KV transfer": "passed",
        "fast lane": "skipped",
    }
    workers = found["KV routing"]["figures"]["workers"]
    assert set(workers) == {"prefill-0", "prefill-1"}
    for figures in workers.values():
        assert figures["hit"] > 0.9
        assert figures["cached_tokens"] > 500
    pairs = found["KV transfer"]["figures"]["pairs"]
    assert len(pairs) == 4
    assert found["KV transfer"]["text"].startswith("simulated: 4 of 4 pairs answered, no KV moved")


def test_the_report_is_on_stdout_and_at_status(running: Run) -> None:
    report = running.status()["report"]
    assert report["simulated"] is True
    assert report["url"] == running.url
    assert {entry["name"] for entry in report["processes"]} >= {"frontend", "prefill-1", "decode-0"}
    assert next(entry for entry in report["processes"] if entry["name"] == "decode-0")["kv_tokens"] == 1048576
    page = running.log
    assert " sim is ready after " in page
    assert "openai/gpt-oss-120b on echo, simulated: no model is computed" in page
    assert "   ✓ tool call" in page
    assert f"   curl {running.url}/v1/chat/completions" in page


def test_smoke_asks_the_launcher_where_the_api_is(running: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", "--admin", f"http://127.0.0.1:{running.admin_port}", "--wait", "5", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["engine"], body["simulated"], body["passed"]) == ("echo", True, True)
    assert {check["outcome"] for check in body["checks"]} == {"passed"}
    routing = next(check for check in body["checks"] if check["name"] == "KV routing")
    assert set(routing["figures"]["workers"]) == {"prefill-0", "prefill-1"}


def test_smoke_needs_no_more_than_a_url(running: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", "--url", running.url]) == 0
    assert "11 passed" in capsys.readouterr().out


class TestOpenAIClient:
    """What the official client makes of the API."""

    @pytest.fixture
    def client(self, running: Run) -> Any:
        openai = pytest.importorskip("openai")
        return openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0, timeout=60)

    MODEL = "openai/gpt-oss-120b"
    ASK: list[dict[str, Any]] = [{"role": "user", "content": "Zurich"}]

    def test_models(self, client: Any) -> None:
        assert [model.id for model in client.models.list()] == [self.MODEL]

    def test_chat(self, client: Any) -> None:
        answer = client.chat.completions.create(model=self.MODEL, messages=self.ASK, max_tokens=300)
        assert answer.choices[0].message.content == "[echo] You said: Zurich"
        assert answer.choices[0].message.reasoning_content
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

    def test_stream(self, client: Any) -> None:
        stream = client.chat.completions.create(
            model=self.MODEL, messages=self.ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "[echo] You said: Zurich"
        assert chunks[-1].usage.completion_tokens > 10

    def test_tool_call_and_its_result(self, client: Any) -> None:
        from launcher.prove.conversation import TOOL

        first = client.chat.completions.create(model=self.MODEL, messages=self.ASK, tools=[TOOL])
        assert first.choices[0].finish_reason == "tool_calls"
        call = first.choices[0].message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"city": "Zurich", "unit": "celsius"}
        messages = [
            *self.ASK,
            {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ]
        second = client.chat.completions.create(model=self.MODEL, messages=messages, tools=[TOOL])
        assert "sunny" in second.choices[0].message.content

    def test_completions_and_responses(self, client: Any) -> None:
        assert client.completions.create(model=self.MODEL, prompt="once", max_tokens=30).choices[0].text
        answer = client.responses.create(model=self.MODEL, input="Zurich")
        assert answer.output_text == "[echo] You said: Zurich"

    def test_errors_are_the_clients_own(self, client: Any) -> None:
        import openai

        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="no/such", messages=self.ASK)
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model=self.MODEL, messages=self.ASK, temperature=99)


def test_a_restarted_worker_is_proven_again(running: Run) -> None:
    """Last of those that share the run: it kills a worker."""
    before = proofs(running)["KV routing"]["figures"]
    os.kill(running.process_state("prefill-0")["pid"], signal.SIGKILL)
    until(running, lambda: running.process_state("prefill-0")["incarnation"] == 1, "no restart")
    until(running, lambda: running.process_state("prefill-0")["healthy"], "not healthy again")
    until(
        running,
        lambda: (now := proofs(running)["KV routing"])["outcome"] == "passed" and now["figures"] != before,
        "not proven again",
    )
    assert running.admin("/readyz")[0] == 200


@pytest.mark.slow
def test_a_publisher_on_a_dead_port_and_one_that_is_off(state: Path) -> None:
    dead = {"env": {"DYN_ZMQ_BROKER_URL": "xsub=tcp://127.0.0.1:9 , xpub=tcp://127.0.0.1:9"}}
    with echo(state, prefill_0=dead, prefill_1={"argv": {"--no-kv-events": ""}}) as run:
        expected = (
            "KV routing not proven: no KV events reach the router from prefill-0; "
            "KV events are switched off at prefill-1; kv.events: true"
        )
        until(run, lambda: expected in run.admin("/readyz")[1], "not named")
        status = run.status()
        assert status["ready"] is False
        assert status["report"] is None
        assert proofs(run)["completion"]["outcome"] == "passed"
        # Whoever only looks at the API sees a healthy deployment.
        assert run.chat()["usage"]["completion_tokens"] > 0


@pytest.mark.slow
def test_block_sizes_that_differ_end_the_run(state: Path) -> None:
    with echo(state, prefill_1={"argv": {"--block-size": "16"}}) as run:
        assert run.wait(90) == 4
        assert "KV routing not proven: prefill-1 has KV blocks of 16 tokens, the plan says 64" in run.log


@pytest.mark.slow
def test_by_policy_a_failure_is_a_warning(state: Path) -> None:
    off = {"argv": {"--no-kv-events": ""}}
    with echo(state, "--set", "proofs.kv_routing=warn", prefill_0=off, prefill_1=off) as run:
        run.ready()
        assert proofs(run)["KV routing"]["outcome"] == "failed"
        said = "KV routing not proven: KV events are switched off at prefill-0 and prefill-1"
        assert any(warning.startswith(said) for warning in run.status()["report"]["warnings"])


@pytest.mark.slow
def test_without_the_vocabulary_it_is_never_ready(state: Path, tmp_path: Path) -> None:
    # Behind the back of the check that would refuse to start.
    hidden = ["env", f"TIKTOKEN_ENCODINGS_BASE={tmp_path}", "HTTPS_PROXY=http://127.0.0.1:9"]
    with echo(state, frontend={"prefix": hidden}) as run:
        until(run, lambda: "completion not proven: an empty message" in run.admin("/readyz")[1], "not named")
        assert "TIKTOKEN_ENCODINGS_BASE" in run.admin("/readyz")[1]


@pytest.mark.slow
def test_on_the_mocker_what_cannot_be_proven_is_said(state: Path) -> None:
    with Run("sim", state=state) as run:
        run.ready()
        found = proofs(run)
        assert found["tool call"]["outcome"] == "skipped"
        assert found["tool call"]["text"] == "not provable here: mocker answers random text"
        assert found["KV routing"]["outcome"] == "passed"
        assert found["KV transfer"]["text"].startswith("simulated: 4 of 4 pairs")


@pytest.mark.compat
@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
@pytest.mark.parametrize("engine", ["echo", "mocker"])
def test_other_releases_are_proven_too(release: str, engine: str, state: Path) -> None:
    python = Path(f"/opt/dyn/{release}/bin/python")
    if not python.is_file():
        pytest.skip(f"no Dynamo {release} here")
    options = ("--engine", engine, "--python", str(python))
    with Run("sim", *options, state=state, TIKTOKEN_ENCODINGS_BASE=VOCABULARY) as run:
        run.ready(120)
        assert proofs(run)["KV routing"]["outcome"] == "passed"
        assert sys.executable not in run.log
