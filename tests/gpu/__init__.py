"""Real GPUs: what only a machine with one shows. Never part of a normal test run: `python -m tests.gpu --help`."""
