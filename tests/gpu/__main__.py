"""What a GPU machine shows, in steps, with a table at the end.

    python -m tests.gpu --out DIR --deadline 560 imports doctor agg disagg disagg-tcp
    python -m tests.gpu --out DIR full:recipe-triton,ours-triton
    python -m tests.gpu --dry --out DIR agg disagg      # the same steps on the simulator, without a GPU

Needs models as `python -m tests.gpu.stage` lays them out under $GPU_ROOT (default /tmp/gpu). DIR gets summary.json,
table.txt and launcher.log. `full:A,B` measures variants of the 120b's shape, each once over all calls; `full` all.
`disagg:decode-0.core,prefill-0.parent` kills these instead of all four.
"""

from __future__ import annotations

import argparse
import functools
import os
from pathlib import Path
from typing import Any

from tests.gpu import doctor, full, small
from tests.gpu.session import Session

STEPS: dict[str, Any] = {
    "imports": small.imports,
    "doctor": doctor.machine,
    "provoke": doctor.step,
    "agg": small.agg,
    "hangs": small.hangs,
    "disagg": small.disagg,
    "disagg-tcp": small.disagg_tcp,
}


def function(name: str, *, speculate: bool, seconds: float) -> Any:
    """The step of a name; `full:A,B` with the variants."""
    if name.partition(":")[0] == "full":
        chosen = [each for each in name.partition(":")[2].split(",") if each]
        known = [variant.name for variant in full.VARIANTS]
        wrong = set(chosen) - set(known)
        if wrong:
            raise SystemExit(f"no variant {', '.join(sorted(wrong))}; there are {', '.join(known)}")
        return full.step(chosen or known, speculate=speculate, seconds=seconds)
    if name.startswith("disagg:"):
        victims = [
            (worker, what) for worker, _, what in (each.partition(".") for each in name[7:].split(","))
        ]
        unknown = set(victims) - set(small.KILLS)
        if unknown:
            raise SystemExit(
                f"no victim {unknown}; there are {', '.join('.'.join(each) for each in small.KILLS)}"
            )
        return functools.partial(small.disagg, kills=victims)
    if name not in STEPS:
        raise SystemExit(f"no step {name!r}; there are {', '.join([*STEPS, 'full:VARIANT,...'])}")
    return STEPS[name]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-out")))
    parser.add_argument("--deadline", type=float, default=560.0, help="seconds for all the steps together")
    parser.add_argument("--dry", action="store_true", help="on the simulator")
    parser.add_argument("--no-speculation", action="store_true", help="`full` without a draft head")
    parser.add_argument("--seconds", type=float, default=45.0, help="of load for each variant of `full`")
    parser.add_argument("steps", nargs="+", metavar="STEP", help=", ".join([*STEPS, "full:VARIANT,..."]))
    args = parser.parse_args()
    functions = {
        name: function(name, speculate=not args.no_speculation, seconds=args.seconds) for name in args.steps
    }
    session = Session(args.out, args.deadline, dry=args.dry)
    session.guard()
    for name, each in functions.items():
        session.step(name, each)
    print("\n" + "\n\n".join(session.tables), flush=True)


if __name__ == "__main__":
    main()
