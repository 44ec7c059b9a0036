"""Words that planning and the front door share."""

SPARE = "frontend-spare"
"""Name of the warm second frontend."""
PRIVATE = 0
"""As a frontend's `http` port: to be given a port of its own at the next start."""
