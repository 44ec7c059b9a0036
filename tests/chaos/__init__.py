"""Faults under load: what `scripts/bench_chaos.py` and the tests of "keep serving" share."""
