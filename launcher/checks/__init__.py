"""Checks: small pure functions from target, plan and machine to findings."""
