"""The log pump under children that write flat out: lines per second, none lost, CPU and memory of the pump.

    uv run python scripts/bench_logs.py [--children 9] [--seconds 10] [--json] [--json-file FILE]

The children are small Python programs that number their lines; the reader checks that each child's numbers come whole
and in order. Standard output of the pump is a pipe with a reader that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launcher.supervise.logpump import LogPump  # noqa: E402
from launcher.supervise.logs import JsonFormat, TextFormat  # noqa: E402
from launcher.supervise.logwriter import LogWriter  # noqa: E402

WRITER = """
import os, sys, time
name, until = sys.argv[1].encode(), time.monotonic() + float(sys.argv[2])
number = 0
while time.monotonic() < until:
    os.write(2, b"".join(b"2026-01-01T00:00:00Z  INFO some.module: %s line %d and some words to fill it\\n" % (name, n)
        for n in range(number, number + 200)))
    number += 200
"""


def read(fd: int, seen: dict[str, int], faults: list[str]) -> None:
    """Count the lines of each child, and note each that is missing or out of order."""
    with os.fdopen(fd, "rb", buffering=1 << 20) as stream:
        for line in stream:
            found = line.partition(b" line ")
            if not found[1]:
                continue
            name = found[0].rpartition(b" ")[2].decode()
            number = int(found[2].split(b" ", 1)[0])
            if number != seen[name]:
                faults.append(f"{name}: {number} instead of {seen[name]}")
            seen[name] = number + 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--children", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("--json-file", type=Path, help="also write the figures here")
    args = parser.parse_args()
    names = [f"worker-{index}" for index in range(args.children)]
    out_read, out_write = os.pipe()
    seen, faults = dict.fromkeys(names, 0), list[str]()
    reader = threading.Thread(target=read, args=(out_read, seen, faults))
    reader.start()
    with tempfile.TemporaryDirectory(prefix="bl-") as folder:
        writer = LogWriter(out_write)
        pump = LogPump(JsonFormat() if args.json else TextFormat(names), writer, log_dir=Path(folder))
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        children = []
        for name in names:
            pipe_read, pipe_write = os.pipe()
            children.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", WRITER, name, str(args.seconds)], stderr=pipe_write
                )
            )
            os.close(pipe_write)
            pump.add(name, "decode", "stderr", pipe_read)
        for child in children:
            child.wait()
        pump.close()
        spent = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
        os.close(out_write)
        reader.join()
        dropped = writer.dropped
    lines = sum(seen.values())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = {
        "children": args.children,
        "format": "json" if args.json else "text",
        "seconds": round(spent, 2),
        "lines": lines,
        "lines_per_s": round(lines / spent),
        "out_of_order_or_missing": len(faults),
        "dropped": dropped,
        # The reader of this script is part of the same process and counted with it.
        "cpu_s": round(cpu, 2),
        "cpu_us_per_line": round(cpu / max(1, lines) * 1e6, 2),
        "rss_mib": round(after.ru_maxrss / 1024, 1),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    print(json.dumps(figures, indent=1))
    if args.json_file:
        args.json_file.write_text(json.dumps(figures, indent=1) + "\n")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
