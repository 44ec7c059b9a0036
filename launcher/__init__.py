"""Launcher: a named target becomes a running, proven, self-healing deployment of gpt-oss-120b on NVIDIA Dynamo."""

__version__ = "0.1.0"
