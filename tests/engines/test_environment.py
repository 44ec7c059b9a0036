"""What Dynamo's processes say too often is kept out of the log, and what matters is not."""

from __future__ import annotations

import pytest

from tests.support.plans import plan

NOISE = ("dynamo_runtime::config", "mm_routing", "dynamo_runtime::component::endpoint")


@pytest.mark.parametrize("target", ["sim", "h200-disagg"])
def test_noise_is_filtered_and_warnings_of_value_are_not(target: str) -> None:
    for process in plan(target).processes:
        if "DYN_LOG" not in process.env:
            continue
        level, *modules = process.env["DYN_LOG"].split(",")
        quiet = dict(module.split("=") for module in modules)
        assert level == "info"
        assert all(quiet[module] == "error" for module in NOISE)
        # One line for each probe of a worker that loads.
        assert quiet["tower_http::trace::on_failure"] == "off"
        # Gaps in the KV events, and events that cannot be read, are warnings of the publisher.
        assert not any("dynamo_llm::kv_router::publisher".startswith(module) for module in quiet)
