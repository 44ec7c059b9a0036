"""Proof that a deployment works: by what it answers, not by what it lists."""
