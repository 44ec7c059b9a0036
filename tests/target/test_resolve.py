"""Targets by name, their layers, and one clear error for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.findings import Exit, Finding, LauncherError
from launcher.target import catalog, document, overrides, voice
from launcher.target.resolve import resolve


def faults(target: str, *sets: str, folder: Path | None = None) -> list[Finding]:
    with pytest.raises(LauncherError) as caught:
        resolve(target, [overrides.parse(text, "--set") for text in sets], folder)
    assert caught.value.exit_code is Exit.USAGE
    return list(caught.value.findings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base = tmp_path / "targets" / "base"
    base.mkdir(parents=True)
    for layer in (catalog.config_dir() / "targets" / "base").glob("*.yaml"):
        (base / layer.name).write_text(layer.read_text())
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / "targets" / f"{name}.yaml").write_text(text)


def test_the_catalog_is_what_the_readme_promises() -> None:
    assert catalog.names() == [
        "b200-agg",
        "b200-disagg",
        "gb200-trtllm-agg",
        "gb200-trtllm-disagg",
        "h200-1gpu-agg",
        "h200-1gpu-disagg",
        "h200-agg",
        "h200-disagg",
        "sim",
    ]


@pytest.mark.parametrize("name", catalog.names())
def test_every_target_names_its_release_and_image(name: str) -> None:
    found = resolve(name).target
    assert found.name == name
    assert found.validated.dynamo
    assert found.validated.engine
    assert found.validated.image


def test_a_value_knows_the_layer_that_set_it() -> None:
    found = resolve("h200-disagg", [overrides.parse("workers.decode.count=2", "--set")])
    assert found.origin("engine", "args", "max-model-len").startswith("configs/targets/base/vllm.yaml:")
    assert found.origin("engine", "args", "moe-backend").startswith("configs/targets/base/h200.yaml:")
    assert found.origin("workers", "prefill", "count").startswith("configs/targets/h200-disagg.yaml:")
    assert found.origin("workers", "decode", "count") == "--set workers.decode.count"
    assert found.origin("network", "http_port") == "default"


@pytest.mark.parametrize("value", ["nan", "1e-400", "1e999999999", "abc", "e5"])
def test_what_is_no_number_without_quotes_either_gets_no_advice(value: str) -> None:
    (finding,) = faults("sim", f'deadlines.start_s="{value}"')
    assert finding.fix == ""


@pytest.mark.parametrize("value", ["1e-9", "1E5", "-1.5e3", "2_0e1"])
def test_what_is_advised_is_read_as_that_number(value: str) -> None:
    found = voice.meant({"type": "float_type", "input": value})
    for written in found.removeprefix("write it as ").split(" or "):
        assert document.parse_value(written, "x") == float(value), found


def test_null_takes_a_flag_away() -> None:
    found = resolve("h200-disagg", [overrides.parse("engine.args.async-scheduling=null", "--set")])
    assert "async-scheduling" not in found.target.engine.args


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("workers.prefil.count=2", "target-unknown-key", "'prefill'"),
        ("kv.blocksize=16", "target-unknown-key", "'block_size'"),
        ("kv.block_size=abc", "target-value", "not a whole number"),
        ('kv.block_size="64"', "target-value", "without quotes"),
        ("deadlines.start_s=1e-9", "target-value", "write it as 0.000000001 or 1.0e-9"),
        ("deadlines.start_s=1e3", "target-value", "write it as 1000 or 1.0e+3"),
        (
            "deadlines.start_s=1.5e300",
            "target-value",
            "not a number (set in --set deadlines.start_s) - write it as 1.5e+300",
        ),
        ("workers.decode.count=1e1", "target-value", "write it as 10"),
        ("network.base_port=40000", "target-value", "more than the most, 32000"),
        ("network.base_port=40000", "target-value", "each launcher takes 500 ports"),
        ("kv.block_size=0", "target-value", "less than the least, 1"),
        ("kv.block_size=true", "target-value", "not a whole number"),
        ("kv.block_size.x=1", "set-path", "plain value"),
        ("workers.prefill.count=-1", "target-value", "less than the least, 0"),
        ("workers.prefill.count=1.5", "target-value", "not a whole number"),
        ("engine.kind=vlm", "target-value", "'vllm'"),
        ("router.mode=kvv", "target-value", "'kv'"),
        ("engine.args.--max-model-len=1", "target-value", "leading dashes"),
        ("engine.env.BAD-NAME=1", "target-value", "not of the form"),
        ("network.http_port=70000", "target-value", "65535"),
        ("network.base_port=80", "target-value", "1024"),
        ("deadlines.grace_s=-5", "target-value", "less than the least, 0"),
        ("model=null", "target-missing-key", "model is missing"),
        ("model.id=../../etc/passwd", "target-value", "not of the form"),
        ("notes=5", "target-value", "not a list"),
    ],
)
def test_one_error_with_place_and_nearest_right_value(change: str, code: str, words: str) -> None:
    (finding,) = faults("h200-disagg", change)
    assert finding.code == code
    assert words in finding.line()
    if code != "target-missing-key":
        assert change.partition("=")[0].split(".")[0] in finding.where


def test_all_faults_are_told_at_once() -> None:
    found = faults("h200-disagg", "kv.blocksize=16", "workers.prefil.count=2", "engine.kind=x")
    assert [finding.code for finding in found].count("target-unknown-key") == 2
    assert len(found) == 3


@pytest.mark.parametrize("text", ["", "=5", "a", "a..b=1", ".=1", "a.=1"])
def test_set_wants_path_and_value(text: str) -> None:
    (finding,) = faults("sim", text)
    assert finding.code == "set-syntax"


def test_an_unknown_target_is_answered_with_the_nearest() -> None:
    (finding,) = faults("h200-disag")
    assert "did you mean 'h200-disagg'" in finding.line()
    (finding,) = faults("./nowhere.yaml")
    assert "no target file" in finding.line()


def test_a_target_file_may_lie_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "extends: [vllm-agg, h200]\ntitle: mine\nworkers: {aggregated: {count: 2}}\npublished: null\n"
    )
    found = resolve(str(path)).target
    assert (found.name, found.title) == ("mine", "mine")
    assert found.workers.aggregated is not None
    assert found.workers.aggregated.count == 2


def test_quotes_are_not_to_blame_for_what_is_no_number() -> None:
    (finding,) = faults("h200-disagg", "kv.block_size=abc")
    assert finding.fix == ""


def test_a_target_file_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    (finding,) = faults(str(tmp_path / "empty.yaml"))
    assert finding.what.endswith("empty.yaml is empty")
    (finding,) = faults(f"{tmp_path}/")
    assert f"{tmp_path} is a folder" in finding.what


def test_a_file_name_that_is_no_target_name(tmp_path: Path) -> None:
    path = tmp_path / "Mein Ziel ä.yaml"
    path.write_text("extends: [vllm-agg, h200]\ntitle: t\npublished: null\n")
    (finding,) = faults(str(path))
    assert '"Mein Ziel ä": not lower-case letters, digits and dashes' in finding.line()


def test_only_layers_can_be_extended(folder: Path) -> None:
    write(folder, "other", "extends: [vllm-agg, h200]\ntitle: t\n")
    write(folder, "mine", "extends: [other]\ntitle: t\n")
    (finding,) = faults("mine", folder=folder)
    assert "only layers of targets/base" in finding.what
    assert "vllm-agg" in finding.fix


def test_circles_and_unknown_layers(folder: Path) -> None:
    (folder / "targets" / "base" / "x.yaml").write_text("extends: [y]\n")
    (folder / "targets" / "base" / "y.yaml").write_text("extends: [x]\n")
    write(folder, "circle", "extends: x\ntitle: t\n")
    (finding,) = faults("circle", folder=folder)
    assert "circle: circle -> x -> y -> x" in finding.line()
    write(folder, "stray", "extends: [vlm]\ntitle: t\n")
    (finding,) = faults("stray", folder=folder)
    assert "did you mean 'vllm'" in finding.line()
    assert "stray.yaml:1" in finding.where
    write(folder, "odd", "extends: {a: 1}\ntitle: t\n")
    (finding,) = faults("odd", folder=folder)
    assert "not a list" in finding.line()


def test_a_fault_in_a_layer_names_the_layer(folder: Path) -> None:
    (folder / "targets" / "base" / "h200.yaml").write_text("hardware:\n  gpu: [H200]\n  gpuz: 8\n")
    write(folder, "mine", "extends: [vllm-agg, h200]\ntitle: t\npublished: null\n")
    (finding,) = faults("mine", folder=folder)
    assert finding.where.endswith("base/h200.yaml:3")
    assert "did you mean 'gpu'" in finding.fix or "did you mean 'gpus'" in finding.fix
