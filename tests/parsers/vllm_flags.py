"""Check the flags that ``dynamo.vllm`` hands on to vLLM, without vLLM.

vLLM cannot be installed on a machine without a GPU, so its half of a command line is checked against what
``scripts/vllm_engine_args.py`` read from the source of each pinned release (``launcher/engines/data``).

Stricter than vLLM on purpose: abbreviated and repeated flags are refused, as is a quantization method,
attention backend or KV connector that the release does not bring itself; JSON values must have the very type
of their key.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "launcher" / "engines" / "data"

VLLM_OF_DYNAMO = {"1.3.1": "0.23.0", "1.4.2": "0.26.0", "1.6.1": "0.31.0"}
"""The vLLM that the ``vllm`` extra of each Dynamo release pins."""

HUMAN_INT = re.compile(r"\d+(\.\d+)?[kKmMgGtT]?")
JSON_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,)}

Entry = dict[str, Any]


@dataclass(frozen=True)
class EngineArgs:
    """The flags of one vLLM release."""

    flags: dict[str, Entry]
    configs: dict[str, dict[str, Entry]]

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Every spelling that is accepted, and the flag it stands for."""
        names = {flag: flag for flag in self.flags}
        for flag, entry in self.flags.items():
            names.update(dict.fromkeys(entry.get("aliases", []), flag))
        return names


@functools.cache
def engine_args(version: str) -> EngineArgs:
    """What is on record for vLLM ``version``, e.g. ``0.23.0``."""
    path = DATA / f"vllm-engine-args-{version}.json"
    if not path.is_file():
        known = sorted(file.stem.rpartition("-")[2] for file in DATA.glob("vllm-engine-args-*.json"))
        raise ValueError(
            f"no record of vLLM {version}, only of {', '.join(known)}: scripts/vllm_engine_args.py"
        )
    record = json.loads(path.read_text(encoding="utf-8"))
    return EngineArgs(record["flags"], record["configs"])


def check_vllm_flags(left_over: Sequence[str], version: str) -> list[str]:
    """What vLLM ``version`` would refuse in ``left_over``; an empty list when it accepts everything."""
    args = engine_args(version)
    problems: list[str] = []
    seen: set[str] = set()
    rest = list(left_over)
    while rest:
        word = rest.pop(0)
        if not _is_flag(word, args):
            problems.append(f"{word!r} belongs to no flag")
            continue
        spelling, equals, attached = word.partition("=")
        spelling, _, path = _dashes(spelling).partition(".")
        flag = args.names.get(spelling)
        if flag is None:
            problems.append(f"unknown flag {spelling}{_nearest(spelling, args.names)}")
            # Its values are not problems of their own.
            while rest and not _is_flag(rest[0], args):
                rest.pop(0)
            continue
        entry = args.flags[flag]
        values = [attached] if equals else _take(rest, entry, args)
        if path:
            problems += _check_dotted(flag, path, entry, values, args)
            continue
        if flag in seen:
            problems.append(f"{flag} is given twice; vLLM keeps the last")
        seen.add(flag)
        problems += _check_values(flag, entry, values, args)
    return problems


def _is_flag(word: str, args: EngineArgs) -> bool:
    return word.startswith("--") or word.partition("=")[0] in args.names


def _dashes(spelling: str) -> str:
    """vLLM takes underscores for dashes, up to the first dot."""
    head, dot, tail = spelling.partition(".")
    return head.replace("_", "-") + dot + tail if head.startswith("--") else spelling


def _take(rest: list[str], entry: Entry, args: EngineArgs) -> list[str]:
    if entry["type"] in ("bool", "switch"):
        return []
    nargs = entry.get("nargs", 1)
    most = len(rest) if nargs == "+" else 1 if nargs == "?" else int(nargs)
    values: list[str] = []
    while rest and len(values) < most and not _is_flag(rest[0], args):
        values.append(rest.pop(0))
    return values


def _check_values(flag: str, entry: Entry, values: list[str], args: EngineArgs) -> list[str]:
    nargs = entry.get("nargs", 1)
    if entry["type"] in ("bool", "switch"):
        return [f"{flag} takes no value, got {values[0]!r}"] if values else []
    if nargs != "?" and (not values or (isinstance(nargs, int) and len(values) != nargs)):
        return [f"{flag} lacks its value" if nargs in (1, "+") else f"{flag} takes {nargs} values"]
    problems = []
    for value in values:
        if value in ("", "None") and entry.get("nullable"):
            continue
        problems += _check_text(flag, entry, value, args)
    return problems


def _check_text(flag: str, entry: Entry, value: str, args: EngineArgs) -> list[str]:
    kind = entry["type"]
    if kind == "json" or (kind == "json_or_str" and value.lstrip().startswith("{")):
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError as error:
            return [f"{flag} is not JSON ({error}): {value!r}"]
        return _check_config(flag, entry, parsed, args)
    number: float | None = None
    if kind == "human_int" and not (value == "-1" or value == "auto" or HUMAN_INT.fullmatch(value)):
        return [f"{flag} wants a number such as 8192 or 8k, got {value!r}"]
    if kind in ("int", "float"):
        try:
            number = int(value) if kind == "int" else float(value)
        except ValueError:
            return [f"{flag} wants {'an' if kind == 'int' else 'a'} {kind}, got {value!r}"]
    if entry.get("lower_underscore"):
        value = value.lower().replace("-", "_")
    return [*_check_choice(flag, entry, value), *_check_bounds(flag, entry, number)]


def _check_choice(where: str, entry: Entry, value: str) -> list[str]:
    for key in ("choices", "known", "some_choices"):
        words = [str(word) for word in entry.get(key, [])]
        if not words:
            continue
        folded = [word.lower() for word in words] if entry.get("any_case") else words
        if (value.lower() if entry.get("any_case") else value) not in folded:
            return [f"{where}: {value!r} is not one of its values{_nearest(value, words)}"]
    return []


def _check_bounds(where: str, entry: Entry, number: float | None) -> list[str]:
    if number is None:
        return []
    broken: dict[str, bool] = {
        "gt": number <= entry.get("gt", number - 1),
        "ge": number < entry.get("ge", number),
        "lt": number >= entry.get("lt", number + 1),
        "le": number > entry.get("le", number),
    }
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    wrong = [name for name, is_broken in broken.items() if is_broken]
    return [f"{where} must be {signs[name]} {entry[name]}, got {number}" for name in wrong]


def _check_config(where: str, entry: Entry, value: Any, args: EngineArgs) -> list[str]:
    """Check a JSON value against the config class it becomes, nested ones included."""
    if not isinstance(value, dict):
        return [f"{where} must be a JSON object, got {json.dumps(value)}"]
    keys = args.configs.get(entry.get("config", ""))
    # An opaque value may also be a plain dictionary, whose keys nobody but its reader knows.
    if keys is None or entry.get("opaque"):
        return []
    problems = []
    if value.get("kv_connector") and "kv_role" not in value:
        problems.append(f"{where}: kv_connector without kv_role")
    for key, item in value.items():
        if key not in keys:
            problems.append(f"{where}: unknown key {key!r}{_nearest(key, keys)}")
        elif key == "kv_connector" and "kv_connector_module_path" in value:
            continue  # a connector from elsewhere may have any name
        else:
            problems += _check_item(f"{where} {key}", keys[key], item, args)
    return problems


def _check_item(where: str, entry: Entry, value: Any, args: EngineArgs) -> list[str]:
    if value is None or entry.get("opaque"):
        return []
    if "nargs" in entry:
        return [] if isinstance(value, list) else [f"{where} must be a list, got {json.dumps(value)}"]
    if entry["type"] in ("json", "json_or_str"):
        return _check_config(where, entry, value, args)
    # An enum may be given by name or by number; bool is a subclass of int, but true is no number of tokens.
    right_type = isinstance(value, JSON_TYPES.get(entry["type"], (object,)))
    if not entry.get("any_case") and (not right_type or isinstance(value, bool) != (entry["type"] == "bool")):
        return [f"{where} must be {entry['type']}, got {json.dumps(value)}"]
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return [*_check_choice(where, entry, str(value)), *_check_bounds(where, entry, number)]


def _check_dotted(flag: str, path: str, entry: Entry, values: list[str], args: EngineArgs) -> list[str]:
    """``--compilation-config.pass_config.eliminate_noops true``: one key of a JSON flag."""
    if entry["type"] != "json":
        return [f"{flag} takes no keys, got .{path}"]
    if not values:
        return [f"{flag}.{path} lacks its value"]
    try:
        nested: Any = json.loads(values[0])
    except json.JSONDecodeError:
        nested = values[0]
    for key in reversed(path.removesuffix("+").split(".")):
        nested = {key: nested}
    return _check_config(flag, entry, nested, args)


def _nearest(word: str, words: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""
