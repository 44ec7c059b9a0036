"""YAML as a value that remembers where each of its parts was written.

Stricter than YAML itself, because a target is small data that people edit under pressure: no duplicate keys, no
aliases (they are how a few lines become gigabytes), no infinities, string keys only.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any

import yaml

from launcher.findings import Finding, LauncherError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_INT = 2**63 - 1
APPEND = (("notes",),)
"""Lists that a layer adds to instead of replacing."""

Origins = dict[tuple[str, ...], str]
"""Path of a value in the document to where it was set, such as `configs/targets/sim.yaml:12`."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _fault(where: str, what: str, fix: str = "", code: str = "target-file") -> LauncherError:
    return LauncherError(Finding(code=code, what=what, where=where, fix=fix))


def read_text(path: Path, shown: str) -> str:
    """The text of a small regular file. Raises LauncherError where it is none, too large or unreadable."""
    try:
        # O_NONBLOCK: opening a FIFO must fail below, not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _fault(shown, f"cannot read the file: {reason}") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise _fault(shown, f"{shown} is a folder, not a target file", "the path of a YAML file in it")
        if not stat.S_ISREG(status.st_mode):
            raise _fault(shown, f"{shown} is not a regular file")
        if status.st_size > MAX_BYTES:
            raise _fault(
                shown, f"{shown} is {status.st_size} bytes long", f"a target file holds at most {MAX_BYTES}"
            )
        raw = os.read(descriptor, MAX_BYTES + 1)
    except OSError as error:
        raise _fault(shown, f"cannot read the file: {error.strerror}") from None
    finally:
        os.close(descriptor)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _fault(shown, f"{shown} is not UTF-8 at byte {error.start}") from None


def parse(text: str, shown: str) -> tuple[dict[str, Any], Origins]:
    """Parse a YAML document that is a mapping; `shown` names the source in origins and errors.

    Raises LauncherError with file and line for anything that is not plain data.
    """
    try:
        # Aliases are found before composing: the composer would resolve them.
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                line = f"{shown}:{event.start_mark.line + 1}" if event.start_mark else shown
                raise _fault(line, f"YAML alias *{event.anchor}", "write the value out, or use `extends`")
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{shown}:{mark.line + 1}" if mark is not None else shown
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        fix = "indent with spaces" if "\\t" in problem or "'\t'" in problem else ""
        raise _fault(where, f"not valid YAML: {problem}", fix) from None
    except RecursionError:
        raise _fault(shown, "nested too deeply") from None
    origins: Origins = {}
    if node is None:
        return {}, origins
    if not isinstance(node, yaml.MappingNode):
        raise _fault(f"{shown}:{node.start_mark.line + 1}", "the document is not a mapping of keys to values")
    value = _build(node, shown, (), origins)
    assert isinstance(value, dict)
    return value, origins


def parse_value(text: str, shown: str) -> Any:
    """One value in YAML's notation, as `--set` takes it: `8`, `true`, `[1, 2]`, `{a: b}`, `null` or plain text."""
    try:
        # As in a file: an alias could make gigabytes of a line.
        if (
            any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_Loader))
            and "&" in text
        ):
            raise _fault(shown, "YAML alias in a value", "write the value out", code="set-syntax")
        node = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        # Plain text such as `a: b: c` or `*x`: the person meant the characters.
        return text
    except UnicodeError:
        raise _fault(shown, "the value is not UTF-8", code="set-syntax") from None
    if node is None:
        return None
    return _build(node, shown, (), {}, lines=False)


def _build(
    node: yaml.Node, shown: str, path: tuple[str, ...], origins: Origins, *, lines: bool = True
) -> Any:
    line = node.start_mark.line + 1
    where = f"{shown}:{line}" if lines else shown
    origins[path] = where
    if len(path) > MAX_DEPTH:
        raise _fault(where, f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, yaml.MappingNode):
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key_where = f"{shown}:{key_node.start_mark.line + 1}" if lines else shown
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise _fault(key_where, "a key that is not a plain name", "use `extends` to share values")
            key = str(key_node.value)
            if key in built:
                raise _fault(key_where, f"the key {key!r} stands twice", "keep one of the two")
            built[key] = _build(value_node, shown, (*path, key), origins, lines=lines)
            # The key's line, not the nested block's: that is where an editor should jump.
            origins[(*path, key)] = key_where
        return built
    if isinstance(node, yaml.SequenceNode):
        return [
            _build(item, shown, (*path, str(index)), origins, lines=lines)
            for index, item in enumerate(node.value)
        ]
    return _scalar(node, where)


def _scalar(node: yaml.Node, where: str) -> Any:
    assert isinstance(node, yaml.ScalarNode)
    tag, text = node.tag, node.value
    if tag == "tag:yaml.org,2002:null":
        return None
    if tag == "tag:yaml.org,2002:bool":
        return text.lower() in ("true", "yes", "on")
    if tag == "tag:yaml.org,2002:int":
        number = _integer(text)
        if number is None:
            return text
        if abs(number) > MAX_INT:
            raise _fault(where, f"the number {text[:24]}… is too large", "at most 64 bits")
        return number
    if tag == "tag:yaml.org,2002:float":
        try:
            real = float(text.replace("_", ""))
        except ValueError:
            raise _fault(where, f"{text!r} is not a finite number") from None
        if not math.isfinite(real):
            raise _fault(where, f"{text!r} is not a finite number")
        return real
    if tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"):
        return text
    raise _fault(where, f"the YAML tag {tag}", "targets hold plain values only")


def _integer(text: str) -> int | None:
    """What a person reads as a whole number. YAML 1.1 would also take 0123 as octal and 1:30 as sixty-based."""
    plain = text.replace("_", "")
    digits = plain.lstrip("+-")
    try:
        if digits.lower().startswith("0x"):
            return int(plain, 16)
        return int(plain) if digits == "0" or not digits.startswith("0") else None
    except ValueError:
        return None


def merge(base: Any, over: Any, base_origins: Origins, over_origins: Origins) -> tuple[Any, Origins]:
    """Lay `over` on `base`: mappings merge key by key, notes add up, anything else replaces, null removes."""
    origins = dict(base_origins)
    return _merge(base, over, (), origins, over_origins), origins


def _merge(base: Any, over: Any, path: tuple[str, ...], origins: Origins, new: Origins) -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        merged = dict(base)
        for key, value in over.items():
            here = (*path, key)
            if value is None:
                merged.pop(key, None)
                _forget(here, origins)
                # Kept, so that an explanation can say who removed the value.
                origins[here] = new.get(here, origins.get(path, ""))
            elif key in merged:
                merged[key] = _merge(merged[key], value, here, origins, new)
            else:
                merged[key] = _without_nulls(value)
                _adopt(here, origins, new)
        return merged
    if path in APPEND and isinstance(base, list) and isinstance(over, list):
        for index in range(len(over)):
            origins[(*path, str(len(base) + index))] = new.get((*path, str(index)), "")
        return base + over
    _forget(path, origins)
    _adopt(path, origins, new)
    return _without_nulls(over)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _forget(path: tuple[str, ...], origins: Origins) -> None:
    for known in [known for known in origins if known[: len(path)] == path]:
        del origins[known]


def _adopt(path: tuple[str, ...], origins: Origins, new: Origins) -> None:
    for known, where in new.items():
        if known[: len(path)] == path:
            origins[known] = where


def origin(path: tuple[str, ...], origins: Origins) -> str:
    """Where the value at `path` was set: its own place, else that of the closest thing around it."""
    for length in range(len(path), -1, -1):
        where = origins.get(path[:length])
        if where:
            return where
    return ""
