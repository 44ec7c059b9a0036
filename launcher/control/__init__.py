"""Orders to a running launcher, over a unix socket in its private folder: nothing of it is on the network."""

from __future__ import annotations

SOCKET = "ctl"
"""Name of the socket in a run's folder."""
