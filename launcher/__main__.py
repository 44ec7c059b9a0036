"""`python -m launcher`."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    if os.getpid() == 1:
        # For PID 1 the kernel drops a signal that nobody handles: a pod that is deleted in its first second would start
        # all its workers, and be killed at the end of the grace period. Nothing runs yet that would have to be stopped.
        signal.signal(signal.SIGTERM, _end)
    try:
        from launcher.cli import main
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    sys.exit(main())
