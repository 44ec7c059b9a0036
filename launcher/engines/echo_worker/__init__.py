"""The ``echo`` engine: a worker on Dynamo's Python runtime that answers scripted harmony tokens.

No model runs. It exercises the real frontend, router and harmony parsers on a machine without GPUs, in a
process of its own (``python -m launcher.engines.echo_worker``). Only ``serve`` imports Dynamo.
"""
