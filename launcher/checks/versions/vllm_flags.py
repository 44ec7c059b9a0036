"""Check the flags that `dynamo.vllm` hands on to vLLM, without vLLM.

Against what `scripts/vllm_engine_args.py` read from the source of each release on record (`engines/data`).
Stricter than vLLM on purpose: abbreviated and repeated flags are refused, as is a quantization method, attention
backend or KV connector that the release does not bring itself; JSON values must have the very type of their key.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from launcher import engines
from launcher.findings import nearest

DATA = Path(engines.__file__).resolve().parent / "data"
HUMAN_INT = re.compile(r"\d+(\.\d+)?[kKmMgGtT]?")
JSON_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,)}

Entry = dict[str, Any]


class Problem(NamedTuple):
    """One thing that vLLM would refuse."""

    flag: str
    """The flag as it was written, with its dashes."""
    what: str
    near: str | None = None
    """The nearest right word."""
    unknown: bool = False
    """The release has no such flag."""
    keys: tuple[str, ...] = ()
    """The key inside of a JSON value that it is about."""

    def __str__(self) -> str:
        return self.what + (f"; did you mean {self.near}?" if self.near else "")


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


def recorded() -> list[str]:
    """The vLLM releases on record."""
    return sorted(file.stem.rpartition("-")[2] for file in DATA.glob("vllm-engine-args-*.json"))


@functools.cache
def engine_args(version: str) -> EngineArgs:
    """What is on record for vLLM `version`, e.g. `0.23.0`. Raises ValueError where nothing is."""
    path = DATA / f"vllm-engine-args-{version}.json"
    if not path.is_file():
        raise ValueError(
            f"no record of vLLM {version}, only of {', '.join(recorded())}: scripts/vllm_engine_args.py"
        )
    record = json.loads(path.read_text(encoding="utf-8"))
    return EngineArgs(record["flags"], record["configs"])


def problems(left_over: Sequence[str], version: str) -> list[Problem]:
    """What vLLM `version` would refuse in `left_over`; an empty list when it accepts everything."""
    args = engine_args(version)
    found: list[Problem] = []
    seen: set[str] = set()
    rest = list(left_over)
    while rest:
        word = rest.pop(0)
        if not _is_flag(word, args):
            found.append(Problem(word, f"{word!r} belongs to no flag"))
            continue
        written, equals, attached = word.partition("=")
        spelling, _, path = _dashes(written).partition(".")
        flag = args.names.get(spelling)
        if flag is None:
            near = nearest(spelling, args.names)
            found.append(Problem(written, f"unknown flag {spelling}", near, unknown=True))
            # Its values are not problems of their own.
            while rest and not _is_flag(rest[0], args):
                rest.pop(0)
            continue
        entry = args.flags[flag]
        values = [attached] if equals else _take(rest, entry, args)
        if path:
            found += _dotted(flag, path, entry, values, args)
            continue
        if flag in seen:
            found.append(Problem(written, f"{flag} is given twice; vLLM keeps the last"))
        seen.add(flag)
        found += _values(flag, entry, values, args)
    return found


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


def _values(flag: str, entry: Entry, values: list[str], args: EngineArgs) -> list[Problem]:
    nargs = entry.get("nargs", 1)
    if entry["type"] in ("bool", "switch"):
        return [Problem(flag, f"{flag} takes no value, got {values[0]!r}")] if values else []
    if nargs != "?" and (not values or (isinstance(nargs, int) and len(values) != nargs)):
        text = f"{flag} lacks its value" if nargs in (1, "+") else f"{flag} takes {nargs} values"
        return [Problem(flag, text)]
    found = []
    for value in values:
        if value in ("", "None") and entry.get("nullable"):
            continue
        found += _text(flag, entry, value, args)
    return found


def _text(flag: str, entry: Entry, value: str, args: EngineArgs) -> list[Problem]:
    kind = entry["type"]
    if kind == "json" or (kind == "json_or_str" and value.lstrip().startswith("{")):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError) as error:
            return [Problem(flag, f"{flag} is not JSON ({error}): {value!r}")]
        return _config(flag, flag, entry, parsed, args)
    number: float | None = None
    if kind == "human_int" and not (value == "-1" or value == "auto" or HUMAN_INT.fullmatch(value)):
        return [Problem(flag, f"{flag} wants a number such as 8192 or 8k, got {value!r}")]
    if kind in ("int", "float"):
        try:
            number = int(value) if kind == "int" else float(value)
        except ValueError:
            return [Problem(flag, f"{flag} wants {'an' if kind == 'int' else 'a'} {kind}, got {value!r}")]
    if entry.get("lower_underscore"):
        value = value.lower().replace("-", "_")
    return [*_choice(flag, flag, entry, value), *_bounds(flag, flag, entry, number)]


def _choice(flag: str, where: str, entry: Entry, value: str) -> list[Problem]:
    for key in ("choices", "known", "some_choices"):
        words = [str(word) for word in entry.get(key, [])]
        if not words:
            continue
        folded = [word.lower() for word in words] if entry.get("any_case") else words
        if (value.lower() if entry.get("any_case") else value) not in folded:
            return [
                Problem(
                    flag,
                    f"{where}: {value!r} is not one of its values",
                    nearest(value, words),
                    keys=_keys(where),
                )
            ]
    return []


def _bounds(flag: str, where: str, entry: Entry, number: float | None) -> list[Problem]:
    if number is None:
        return []
    broken: dict[str, bool] = {
        "gt": number <= entry.get("gt", number - 1),
        "ge": number < entry.get("ge", number),
        "lt": number >= entry.get("lt", number + 1),
        "le": number > entry.get("le", number),
    }
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    wrong = [name for name, is_broken in broken.items() if is_broken and name in entry]
    return [
        Problem(flag, f"{where} must be {signs[name]} {entry[name]}, got {number}", keys=_keys(where))
        for name in wrong
    ]


def _config(flag: str, where: str, entry: Entry, value: Any, args: EngineArgs) -> list[Problem]:
    """Check a JSON value against the config class it becomes, nested ones included."""
    if not isinstance(value, dict):
        return [Problem(flag, f"{where} must be a JSON object, got {json.dumps(value)}")]
    keys = args.configs.get(entry.get("config", ""))
    # An opaque value may also be a plain dictionary, whose keys nobody but its reader knows.
    if keys is None or entry.get("opaque"):
        return []
    found = []
    if value.get("kv_connector") and "kv_role" not in value:
        found.append(Problem(flag, f"{where}: kv_connector without kv_role"))
    for key, item in value.items():
        if key not in keys:
            path = (*_keys(where), key)
            found.append(Problem(flag, f"{where}: unknown key {key!r}", nearest(key, keys), keys=path))
        elif key == "kv_connector" and "kv_connector_module_path" in value:
            continue  # a connector from elsewhere may have any name
        else:
            found += _item(flag, f"{where} {key}", keys[key], item, args)
    return found


def _item(flag: str, where: str, entry: Entry, value: Any, args: EngineArgs) -> list[Problem]:
    if value is None or entry.get("opaque"):
        return []
    if "nargs" in entry:
        right = isinstance(value, list)
        return [] if right else [Problem(flag, f"{where} must be a list, got {json.dumps(value)}")]
    if entry["type"] in ("json", "json_or_str"):
        return _config(flag, where, entry, value, args)
    # An enum may be given by name or by number; bool is a subclass of int, but true is no number of tokens.
    right_type = isinstance(value, JSON_TYPES.get(entry["type"], (object,)))
    if not entry.get("any_case") and (not right_type or isinstance(value, bool) != (entry["type"] == "bool")):
        text = f"{where} must be {entry['type']}, got {json.dumps(value)}"
        return [Problem(flag, text, keys=_keys(where))]
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return [*_choice(flag, where, entry, str(value)), *_bounds(flag, where, entry, number)]


def _keys(where: str) -> tuple[str, ...]:
    """The keys in `--flag key inner`."""
    return tuple(where.split()[1:])


def _dotted(flag: str, path: str, entry: Entry, values: list[str], args: EngineArgs) -> list[Problem]:
    """`--compilation-config.pass_config.eliminate_noops true`: one key of a JSON flag."""
    if entry["type"] != "json":
        return [Problem(flag, f"{flag} takes no keys, got .{path}")]
    if not values:
        return [Problem(flag, f"{flag}.{path} lacks its value")]
    try:
        nested: Any = json.loads(values[0])
    except (ValueError, RecursionError):
        nested = values[0]
    for key in reversed(path.removesuffix("+").split(".")):
        nested = {key: nested}
    return _config(flag, flag, entry, nested, args)


def releases_with(flag: str, releases: Iterable[str]) -> list[str]:
    """Those of the releases that know the flag."""
    return [release for release in releases if flag in engine_args(release).names]
