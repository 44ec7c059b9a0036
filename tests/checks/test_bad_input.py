"""Whatever is given as target, `--set`, variable or engine flag: a plan or findings, soon, and never a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher import settings as launcher_settings
from launcher.cli import main
from launcher.target import catalog
from tests.checks.bad import plan_or_findings, quick, target_file
from tests.support.plans import TARGETS

# One example runs a whole planning: some 30 ms.
EXAMPLES = int(os.environ.get("LAUNCHER_TEST_EXAMPLES", "25"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)


# Generated ------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.sampled_from(
        ["", "auto", "0", "128k", "-1", "1e400", "null", "~", "yes", "١٢", "ＡＢ", "\u202e", "a\tb"]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(min_size=1, max_size=12), inner, max_size=4)
    ),
    max_leaves=8,
)


def leaves(doc: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place of a document."""
    if isinstance(doc, dict):
        for key, value in doc.items():
            yield (*path, key)
            yield from leaves(value, (*path, key))


DOCUMENTS = {name: catalog.load(name)[0] for name in TARGETS}
PLACES = sorted({path for doc in DOCUMENTS.values() for path in leaves(doc)})


def as_yaml(value: Any) -> str:
    return (
        str(yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True))
        .removesuffix("\n...\n")
        .strip()
    )


@FUZZ
@given(target=st.sampled_from(TARGETS), place=st.sampled_from(PLACES), value=values)
def test_any_value_anywhere_by_set(target: str, place: tuple[str, ...], value: Any) -> None:
    text = as_yaml(value)
    if "\n" in text:
        text = repr(value)
    plan_or_findings(target=target, set=[f"{'.'.join(place)}={text}"])


@FUZZ
@given(target=st.sampled_from(TARGETS), text=st.text(max_size=80))
def test_any_text_by_set(target: str, text: str) -> None:
    plan_or_findings(target=target, set=[text])


@FUZZ
@given(data=st.data(), target=st.sampled_from(TARGETS))
def test_a_target_file_with_parts_replaced(data: st.DataObject, target: str, tmp_path: Path) -> None:
    doc = yaml.safe_load(yaml.safe_dump(DOCUMENTS[target]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(sorted(leaves(doc)) or [("name",)]))
        here = doc
        for part in place[:-1]:
            here = here[part] if isinstance(here, dict) and part in here else {}
        if isinstance(here, dict):
            here[place[-1]] = data.draw(values)
    text = yaml.safe_dump(doc, allow_unicode=True)
    plan_or_findings(target=str(target_file(tmp_path, text)))


@FUZZ
@given(content=st.one_of(st.binary(max_size=300), st.text(max_size=300)))
def test_any_bytes_as_a_target_file(content: bytes | str, tmp_path: Path) -> None:
    plan_or_findings(target=str(target_file(tmp_path, content)))


@FUZZ
@given(
    lines=st.lists(
        st.sampled_from(
            [
                "a: 1",
                "- b",
                "  c: [",
                "? x",
                "&a",
                "*a",
                "!!python/object:os.system",
                "{",
                "}",
                "'",
                '"',
                "|",
                "%YAML 1.1",
                "---",
                "...",
                "\tkey: 1",
                "<<: *a",
                "key: &k {k: *k}",
                "# x",
                ": ",
                "a:",
            ]
        ),
        max_size=12,
    )
)
def test_broken_yaml(lines: list[str], tmp_path: Path) -> None:
    plan_or_findings(target=str(target_file(tmp_path, "\n".join(lines))))


flags = st.one_of(
    st.sampled_from(
        ["max-model-len", "max-num-seqs", "gpu-memory-utilization", "compilation-config", "kv-events-config"]
    ),
    st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
)


@FUZZ
@given(
    target=st.sampled_from(TARGETS),
    flag=flags,
    value=values,
    role=st.sampled_from(["engine", "workers.prefill", "frontend", "simulation", "workers.aggregated"]),
)
def test_any_engine_flag(target: str, flag: str, value: Any, role: str, tmp_path: Path) -> None:
    doc = yaml.safe_load(yaml.safe_dump(DOCUMENTS[target]))
    here = doc
    for part in role.split("."):
        here = here.setdefault(part, {})
    here.setdefault("args", {})[flag] = value
    plan_or_findings(target=str(target_file(tmp_path, yaml.safe_dump(doc, allow_unicode=True))))


@FUZZ
@given(
    keys=st.dictionaries(
        st.sampled_from(
            [
                "kv_cache_config",
                "moe_config",
                "max_seq_len",
                "max_batch_size",
                "tensor_parallel_size",
                "moe_expert_parallel_size",
                "moe_tensor_parallel_size",
                "pipeline_parallel_size",
                "cuda_graph_config",
                "cache_transceiver_config",
                "max_num_tokens",
                "enable_attention_dp",
                "attention_dp_config",
            ]
        ),
        values,
        max_size=5,
    ),
    place=st.sampled_from(["engine.config", "workers.prefill.config", "workers.decode.config"]),
)
def test_any_engine_yaml(keys: dict[str, Any], place: str, tmp_path: Path) -> None:
    doc = yaml.safe_load(yaml.safe_dump(DOCUMENTS["gb200-trtllm-disagg"]))
    here = doc
    for part in place.split("."):
        here = here.setdefault(part, {})
    here |= keys
    plan_or_findings(target=str(target_file(tmp_path, yaml.safe_dump(doc, allow_unicode=True))))


NAMES = [f"LAUNCHER_{name.upper()}" for name in launcher_settings.Settings.model_fields]


@FUZZ
@given(
    environ=st.dictionaries(
        st.one_of(
            st.sampled_from(NAMES),
            st.text(st.characters(codec="ascii", exclude_characters="=\0"), min_size=1, max_size=20).map(
                lambda text: "LAUNCHER_" + text
            ),
        ),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
        max_size=4,
    )
)
def test_any_environment(environ: dict[str, str]) -> None:
    saved = dict(os.environ)
    os.environ.update({"LAUNCHER_TARGET": "sim", **environ})
    try:
        plan_or_findings()
    finally:
        os.environ.clear()
        os.environ.update(saved)


@FUZZ
@given(
    arguments=st.lists(
        st.one_of(
            st.text(max_size=15),
            st.sampled_from(
                [
                    "--target",
                    "sim",
                    "--set",
                    "--ignore",
                    "--engine",
                    "--machine",
                    "plan",
                    "doctor",
                    "--json",
                    "--dry-run",
                    "--http-port",
                    "--output",
                ]
            ),
        ),
        max_size=5,
    )
)
def test_any_command_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # Nothing that starts something, waits for a server, downloads or writes.
    if not arguments or arguments[0] not in ("plan", "doctor", "targets", "explain"):
        arguments = ["plan", *arguments]
    with quick():
        try:
            code = main(arguments)
        except SystemExit as exit_:  # --help
            code = int(exit_.code or 0)
    assert code in (0, 2, 3)
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert code != 2 or err or arguments[0] == "doctor"
