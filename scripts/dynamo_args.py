"""Record which flags the installed Dynamo release takes, read from its own parsers.

    /opt/dyn/1.4.2/bin/python scripts/dynamo_args.py

writes ``launcher/engines/data/dynamo-args-RELEASE.json``. Run it under the Python of each release: the parsers of
frontend, mocker and workers are built as ``tests/parsers/accept.py`` does, and their arguments are listed. What belongs
to vLLM is in ``vllm-engine-args-*.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "launcher" / "engines" / "data"
LEAST = {"dynamo.mocker": ["--model-path", "/model"], "dynamo.trtllm": ["--model-path", "/model"]}
"""What a parser needs to get through; the others take an empty command line."""
NUMBERS = {"int": "int", "float": "float"}


def flags_of(module: str) -> dict[str, dict[str, Any]]:
    """Every long flag of a module's parsers and what it takes."""
    sys.path.insert(0, str(ROOT / "tests" / "parsers"))
    accept = importlib.import_module("accept")
    parse = accept.parser_of(module)
    seen: list[argparse.ArgumentParser] = []
    with (
        accept._environment({}),
        accept._no_abbreviations(seen),
        contextlib.redirect_stdout(sys.stderr),
        contextlib.suppress(Exception),  # a rule between flags; the arguments are there all the same
    ):
        parse(LEAST.get(module, []))
    found: dict[str, dict[str, Any]] = {}
    for action in (action for parser in seen for action in parser._actions):
        entry: dict[str, Any] = {}
        if action.nargs is not None:
            entry["nargs"] = action.nargs
        number = NUMBERS.get(getattr(action.type, "__name__", ""))
        if number:
            entry["type"] = number
        # A converter (1.6.1 takes aic for ais) makes the choices narrower than what is accepted.
        if action.choices is not None and getattr(action.type, "__name__", "str") == "str":
            entry["choices"] = sorted(str(accept._plain(choice)) for choice in action.choices)
        help_text = " ".join((action.help or "").split())
        if re.search(r"^\W*deprecated\b|\bis deprecated\b", help_text, re.IGNORECASE):
            entry["deprecated"] = re.split(r" env var:", help_text)[0][:240]
        for option in action.option_strings:
            if option.startswith("--"):
                found[option] = entry
    return dict(sorted(found.items()))


def main() -> None:
    """Write the record of the release that this Python has."""
    release = importlib.metadata.version("ai-dynamo")
    modules = {
        name: flags_of(name) for name in ("dynamo.frontend", "dynamo.mocker", "dynamo.trtllm", "dynamo.vllm")
    }
    lines = [f'{{\n"dynamo": "{release}",\n"made_by": "scripts/dynamo_args.py",\n"modules": {{']
    for place, (module, flags) in enumerate(modules.items()):
        rows = ",\n".join(f"  {json.dumps(flag)}: {json.dumps(entry)}" for flag, entry in flags.items())
        lines.append(f'"{module}": {{\n{rows}\n}}{"," if place < len(modules) - 1 else ""}')
    lines.append("}\n}\n")
    (DATA / f"dynamo-args-{release}.json").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
