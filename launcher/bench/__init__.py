"""Measuring a deployment: traces, AIPerf runs, sweeps, reports."""
