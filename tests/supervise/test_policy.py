from __future__ import annotations

import pytest

from launcher.supervise.policy import RestartBudget, RestartPolicy


def budget(at_once: bool = False, chance: float = 0.5, **policy: float) -> RestartBudget:
    return RestartBudget(RestartPolicy(**policy), at_once=at_once, chance=lambda: chance)  # type: ignore[arg-type]


def test_delays_grow_up_to_a_limit() -> None:
    deaths = budget(budget=6, first_s=1.0, factor=2.0, max_s=10.0)
    assert [deaths.died(float(second)) for second in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_the_death_after_the_budget_is_final() -> None:
    deaths = budget(budget=2)
    assert deaths.left(0.0) == 2
    assert deaths.died(0.0) is not None
    assert deaths.died(1.0) is not None
    assert deaths.left(1.0) == 0
    assert deaths.died(2.0) is None


def test_deaths_outside_the_window_are_forgotten() -> None:
    deaths = budget(budget=1, window_s=100.0, first_s=1.0)
    assert deaths.died(0.0) == 1.0
    assert deaths.died(100.0) == 1.0
    assert deaths.died(150.0) is None


def test_who_had_served_comes_back_fast_and_is_counted_all_the_same() -> None:
    budget = RestartBudget(RestartPolicy(budget=4, jitter=0))
    delays = [
        budget.died(at, served_s=served) for at, served in ((0, 0), (10, 3), (20, 60), (30, 9.9), (40, 60))
    ]
    assert delays == [0.5, 1.0, 0.5, 1.0, None]


def test_jitter_spreads_around_the_delay() -> None:
    assert budget(first_s=1.0, jitter=0.2, chance=0.0).died(0.0) == pytest.approx(0.8)
    assert budget(first_s=1.0, jitter=0.2, chance=1.0).died(0.0) == pytest.approx(1.2)


def test_a_frontend_returns_at_once_the_first_time() -> None:
    deaths = budget(at_once=True, first_s=1.0)
    assert [deaths.died(0.0), deaths.died(1.0), deaths.died(2.0)] == [0.0, 1.0, 2.0]


def test_what_was_never_ready_gets_one_more_try() -> None:
    deaths = budget()
    assert deaths.died(0.0, ever_ready=False) is not None
    assert deaths.died(1.0, ever_ready=False) is None


def test_disabled_means_the_first_death_is_final() -> None:
    assert RestartBudget(RestartPolicy(enabled=False)).died(0.0) is None


@pytest.mark.parametrize("wrong", [{"budget": -1}, {"window_s": 0.0}, {"jitter": 1.0}, {"factor": 0.5}])
def test_impossible_policies_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="restart"):
        RestartPolicy(**wrong)  # type: ignore[arg-type]
