"""`launcher explain` and `launcher targets`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from launcher.checks import background, evidence, registry, report
from tests.support.plans import TARGETS


@pytest.mark.parametrize("code", background.codes())
def test_every_code_is_explained(run: Any, code: str) -> None:
    status, out, err = run("explain", code)
    assert (status, err) == (0, "")
    assert out.startswith(code)
    assert len(out) > 80
    assert all(len(line) <= 110 for line in out.splitlines() if "http" not in line)


def test_explaining_as_it_is_copied_from_a_log_and_what_is_no_code(run: Any) -> None:
    out = run("explain", "error[gpu-none]:")[1]
    assert out.startswith("gpu-none (a check of the machine)")
    assert "evidence: https://github.com/ai-dynamo/dynamo/issues/4249" in run("explain", "kv-events-off")[1]
    status, _, err = run("explain", "gpu-non")
    assert status == 2
    assert "did you mean 'gpu-none'? launcher explain lists them" in err
    assert run("explain", "nope")[2].endswith("- launcher explain lists them\n")
    assert run("plan", "--target", "sim", "--ignore", "nosuchcode")[2].endswith(
        "- launcher explain lists them\n"
    )
    # Not of a check: from around the place where it is made.
    assert "launcher" in run("explain", "status-unreachable")[1]
    listing = run("explain")[1]
    assert all(code in listing for code in registry.codes() if code not in ("check-failed", "flag-renamed"))


def test_the_evidence_is_in_the_explanation_and_in_json_alone(run: Any) -> None:
    sets = ("--target", "h200-disagg", "--machine", "H200:8", "--set", "workers.prefill.args.block-size=16")
    code, _, err = run("plan", *sets)
    assert (code, "error[block-size]" in err) == (2, True)
    assert not re.search(r"\[\w+#\d+", err)
    found = json.loads(run("doctor", *sets, "--json")[1])["findings"]
    assert any(finding.get("link") for finding in found)


def test_every_code_that_a_check_module_yields_is_declared() -> None:
    """A finding whose code no check declares could be neither ignored nor explained."""
    root = Path(report.__file__).parent
    for path in root.rglob("*.py"):
        for code in re.findall(r'code="([a-z0-9-]+)"', path.read_text()):
            assert code in background.codes(), (path.name, code)


def test_codes_are_unique_and_named_alike() -> None:
    declared = [code for check in registry.CHECKS for code in check.codes]
    assert len(declared) == len(set(declared))
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+|quantization", code) for code in declared)


def links() -> Iterable[str]:
    for path in Path(report.__file__).parent.rglob("*.py"):
        yield from re.findall(r'link="([^"]+)"', path.read_text())


def test_every_piece_of_evidence_has_an_address() -> None:
    known = list(links())
    assert len(known) > 30
    for link in known:
        assert all(address.startswith("https://") for address in evidence.addresses(link)), link


# Targets --------------------------------------------------------------------------------------------


def test_targets_here(run: Any) -> None:
    code, out, _ = run("targets", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)["targets"]}
    assert set(rows) == set(TARGETS)
    assert rows["sim"]["fits"]
    assert not rows["h200-disagg"]["fits"]
    assert "needs 8 GPUs and none is here" in " ".join(rows["h200-disagg"]["why_not"])
    assert rows["h200-disagg"]["gpus"] == 8


def test_targets_of_another_machine(run: Any) -> None:
    rows = {
        row["name"]: row for row in json.loads(run("targets", "--json", "--machine", "H200")[1])["targets"]
    }
    assert {name for name, row in rows.items() if row["fits"]} == {
        "h200-agg",
        "h200-disagg",
        "h200-1gpu-agg",
        "h200-1gpu-disagg",
        "sim",
    }
    assert "H200; b200-agg is for B200" in " ".join(rows["b200-agg"]["why_not"])
    table = run("targets", "--machine", "B200:8")[1]
    assert re.search(r"b200-disagg +8x B200 +vllm +fits", table)
    assert re.search(r"gb200-trtllm-agg +4x GB200 +trtllm +no", table)


def test_the_table_leads_with_the_gpus_and_says_where_the_rest_is(run: Any) -> None:
    out = run("targets")[1]
    assert "  h200-disagg: needs 8 GPUs and none is here" in out
    assert re.search(r"  h200-disagg: .* more: launcher doctor --target h200-disagg\)", out)
    assert re.search(r"h200-disagg +8x H200 +vllm +no +4 prefill \+ 4 decode, NIXL", out)


def test_a_broken_target_is_a_row(run: Any, tmp_path: Path) -> None:
    (tmp_path / "targets" / "base").mkdir(parents=True)
    (tmp_path / "targets" / "broken.yaml").write_text("name: [")
    code, out, _ = run("targets", "--config-dir", str(tmp_path))
    assert code == 0
    assert "not valid YAML" in out
    # Nobody knows its GPUs: `none` would say that it needs none.
    assert re.search(r"^broken +- +- +no +-$", out, re.M)
    rows = json.loads(run("targets", "--config-dir", str(tmp_path), "--json")[1])["targets"]
    assert rows[0]["gpus"] is None
