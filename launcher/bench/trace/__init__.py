"""Traces in Mooncake's format: made from a seed, read and checked, described."""
