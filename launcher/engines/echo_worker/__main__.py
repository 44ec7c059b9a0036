"""Run one echo worker: ``python -m launcher.engines.echo_worker --help``."""

from __future__ import annotations

import uvloop

from launcher.engines.echo_worker import args


def main() -> None:
    """Parse the command line and serve until SIGTERM."""
    options = args.parse()
    # Imported late: a wrong command line is told at once, and --help works where Dynamo is not installed.
    from launcher.engines.echo_worker.serve import serve

    uvloop.run(serve(options))


if __name__ == "__main__":
    main()
