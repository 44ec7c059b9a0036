"""Record which flags a vLLM release takes, read from the source in its wheel.

    python scripts/vllm_engine_args.py 0.23.0 0.26.0 0.31.0

writes ``launcher/engines/data/vllm-engine-args-VERSION.json`` for each. vLLM itself is neither installed nor
imported (it wants torch and a GPU): its wheel is downloaded, its Python files are parsed with :mod:`ast`, and
the wheel is deleted again. What is derived follows ``vllm/engine/arg_utils.py``: a flag's type and choices
come from the annotation of the config field behind it, unless ``add_cli_args`` overrides them.

Read, not run, so three things stay out of sight: plug-ins that add flags, what the platform adds
(``current_platform.pre_register_and_update``), and every check in a validator's body.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "launcher" / "engines" / "data"
ARG_UTILS = "vllm.engine.arg_utils"
CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.factory"
BOUNDS = ("gt", "ge", "lt", "le")
LOWER_UNDERSCORE = "lambda s: s.lower().replace('-', '_')"

# Built by vLLM from other flags; nobody writes a whole model or parallel config into --speculative-config.
OPAQUE_CONFIGS = {"ModelConfig", "ParallelConfig", "VllmConfig"}


@dataclass
class Module:
    """One parsed source file: what its top-level names are bound to."""

    name: str
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    nodes: dict[str, ast.expr | ast.ClassDef] = field(default_factory=dict)
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))


@dataclass(frozen=True)
class Hint:
    """One member of a (union) annotation."""

    kind: str
    values: tuple[Any, ...] = ()
    name: str = ""


@dataclass
class Wheel:
    """The Python source of a wheel, read lazily, with the names followed from module to module."""

    archive: zipfile.ZipFile
    modules: dict[str, Module | None] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)  # config class -> module that defines it
    read: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)

    def module(self, name: str) -> Module | None:
        """The module ``name``, or ``None`` where the wheel has no such source."""
        if name not in self.modules:
            self.modules[name] = self._load(name)
        return self.modules[name]

    def find(self, module: str, name: str) -> tuple[str, ast.expr | ast.ClassDef] | None:
        """What ``name`` means in ``module``, and the module that defines it; imports are followed."""
        for _ in range(10):
            source = self.module(module)
            if source is None:
                return None
            if name in source.nodes:
                return module, source.nodes[name]
            target = source.imports.get(name)
            if target is None or target[1] is None:
                return None
            module, name = target[0], target[1]
        return None

    def find_class(self, module: str, name: str) -> tuple[str, ast.ClassDef]:
        """Like :meth:`find`, for a class that must be there."""
        found = self.find(module, name)
        if found is None or not isinstance(found[1], ast.ClassDef):
            raise LookupError(f"no class {name} in {module}; has vLLM moved it?")
        return found[0], found[1]

    def _load(self, name: str) -> Module | None:
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            try:
                text = self.archive.read(path)
            except KeyError:
                continue
            self.read.append(path)
            package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
            module = Module(name, tree=ast.parse(text))
            _bind(module, module.tree.body, package)
            return module
        return None


def _bind(module: Module, body: Sequence[ast.stmt], package: str) -> None:
    for node in body:
        match node:
            case ast.Import():
                for alias in node.names:
                    module.imports.setdefault(alias.asname or alias.name, (alias.name, None))
            case ast.ImportFrom():
                origin = node.module or ""
                if node.level:
                    base = package.split(".")
                    origin = ".".join(base[: len(base) - node.level + 1] + ([origin] if origin else []))
                for alias in node.names:
                    module.imports.setdefault(alias.asname or alias.name, (origin, alias.name))
            case ast.ClassDef():
                module.nodes.setdefault(node.name, node)
            case ast.Assign(targets=[ast.Name(id=name)]):
                module.nodes.setdefault(name, node.value)
            case ast.AnnAssign(target=ast.Name(id=name)) if node.value is not None:
                module.nodes.setdefault(name, node.value)
            case ast.If():
                # The first binding wins: under TYPE_CHECKING it is the real type, otherwise only Any.
                _bind(module, node.body, package)
                _bind_weakly(module, node.orelse, package)
            case ast.Try():
                _bind(module, node.body, package)
            case _:
                pass


def _bind_weakly(module: Module, body: Sequence[ast.stmt], package: str) -> None:
    other = Module(module.name)
    _bind(other, body, package)
    known = module.imports.keys() | module.nodes.keys()
    module.imports.update({name: target for name, target in other.imports.items() if name not in known})
    module.nodes.update({name: node for name, node in other.nodes.items() if name not in known})


# Annotations -------------------------------------------------------------------------------------


def hints(wheel: Wheel, module: str, node: ast.expr) -> list[Hint]:
    """The members of an annotation, aliases followed; mirrors vLLM's ``get_type_hints``."""
    match node:
        case ast.Constant(value=None):
            return [Hint("None")]
        case ast.Constant(value=str(text)):
            return hints(wheel, module, ast.parse(text, mode="eval").body)
        case ast.BinOp(op=ast.BitOr()):
            return [*hints(wheel, module, node.left), *hints(wheel, module, node.right)]
        case ast.Name(id=name):
            return _named(wheel, module, name)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            target = _module_behind(wheel, module, owner)
            return _named(wheel, target, name) if target else [Hint("other", name=name)]
        case ast.Subscript():
            return _subscripted(wheel, module, node)
        case _:
            return [Hint("other", name=ast.unparse(node))]


def _named(wheel: Wheel, module: str, name: str) -> list[Hint]:
    if name in ("bool", "str", "int", "float", "dict", "list", "tuple", "set"):
        return [Hint(name)]
    found = wheel.find(module, name)
    if found is None:
        return [Hint("other", name=name)]
    home, target = found
    if not isinstance(target, ast.ClassDef):
        return hints(wheel, home, target)
    bases = {ast.unparse(base).rpartition(".")[2] for base in target.bases}
    if any(base.endswith(("Enum", "Flag")) for base in bases):
        return [Hint("enum", _members(target), name)]
    if bases & {"dict", "TypedDict"}:
        return [Hint("dict")]
    decorators = {ast.unparse(decorator).partition("(")[0] for decorator in target.decorator_list}
    if decorators & {"config", "dataclass"}:
        wheel.homes[name] = home
        return [Hint("config", name=name)]
    return [Hint("other", name=name)]


def _subscripted(wheel: Wheel, module: str, node: ast.Subscript) -> list[Hint]:
    head = ast.unparse(node.value).rpartition(".")[2]
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    match head:
        case "Literal":
            return [Hint("literal", tuple(_literals(wheel, module, parts)))]
        case "Annotated" | "SkipValidation" | "Final":
            return hints(wheel, module, parts[0])
        case "Optional":
            return [*hints(wheel, module, parts[0]), Hint("None")]
        case "Union":
            return [hint for part in parts for hint in hints(wheel, module, part)]
        case "list" | "List" | "set" | "tuple" | "Sequence":
            elements = hints(wheel, module, parts[0])
            fixed = len(parts) if head == "tuple" and ast.unparse(parts[-1]) != "..." else 0
            return [Hint(head.lower(), (*elements, fixed))]
        case "dict" | "Dict" | "Mapping":
            return [Hint("dict")]
        case _:
            return [Hint("other", name=head)]


def _literals(wheel: Wheel, module: str, parts: Sequence[ast.expr]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, ast.Constant):
            yield part.value
            continue
        nested = [hint for hint in hints(wheel, module, part) if hint.kind == "literal"]
        if not nested:
            wheel.not_read.append(f"{module}: Literal member {ast.unparse(part)}")
        for hint in nested:
            yield from hint.values


def _members(node: ast.ClassDef) -> tuple[str, ...]:
    """Names an enum can be given by: its members, and their values where those are plain words."""
    names: list[str] = []
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            names.append(statement.targets[0].id)
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, (str, int)):
                word = str(value.value)
                if word and "." not in word and word.lower() not in (name.lower() for name in names):
                    names.append(word)
    return tuple(name for name in names if not name.startswith("_"))


def _module_behind(wheel: Wheel, module: str, alias: str) -> str | None:
    source = wheel.module(module)
    if source is None or alias not in source.imports:
        return None
    origin, name = source.imports[alias]
    return origin if name is None else f"{origin}.{name}"


# Config fields -----------------------------------------------------------------------------------


def config_fields(wheel: Wheel, module: str, node: ast.ClassDef) -> dict[str, tuple[str, ast.AnnAssign]]:
    """Fields of a config class that can be set from outside, its bases' first."""
    fields: dict[str, tuple[str, ast.AnnAssign]] = {}
    for base in node.bases:
        found = wheel.find(module, base.id) if isinstance(base, ast.Name) else None
        if found is not None and isinstance(found[1], ast.ClassDef):
            fields.update(config_fields(wheel, found[0], found[1]))
    for statement in node.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        annotation = ast.unparse(statement.annotation)
        value = statement.value
        unsettable = isinstance(value, ast.Call) and any(
            keyword.arg == "init" and ast.unparse(keyword.value) == "False" for keyword in value.keywords
        )
        if annotation.startswith(("ClassVar", "InitVar")) or unsettable:
            continue
        fields[statement.target.id] = (module, statement)
    return fields


def describe(wheel: Wheel, name: str, module: str, statement: ast.AnnAssign) -> dict[str, Any]:
    """Type, choices, arity and bounds of one config field; mirrors vLLM's ``_compute_kwargs``."""
    members = hints(wheel, module, statement.annotation)
    kinds = {hint.kind: hint for hint in members}
    entry: dict[str, Any] = {}
    if "config" in kinds:
        entry.update(type="json", config=kinds["config"].name)
    elif kinds.keys() == {"bool", "str", "None"}:
        entry.update(type="str", nargs="?")
    elif "bool" in kinds:
        entry["type"] = "bool"
    elif "literal" in kinds:
        values = sorted(set(kinds["literal"].values), key=str)
        entry["type"] = type(values[0]).__name__ if values else "str"
        entry["known" if "str" in kinds else "choices"] = values
    elif collection := next((kinds[kind] for kind in ("tuple", "list", "set") if kind in kinds), None):
        entry.update(_collection(collection))
    elif "int" in kinds:
        entry["type"] = "int"
    elif "float" in kinds:
        entry["type"] = "float"
    elif "dict" in kinds:
        only_json = kinds.keys() <= {"dict", "None"}
        entry["type"] = "json" if only_json else "json_or_str"
    else:
        entry["type"] = "str"
    if "enum" in kinds:
        entry["known"] = list(kinds["enum"].values)
        entry["any_case"] = True
    if len(kinds.keys() - {"None", "literal"}) > 1 or "other" in kinds:
        # Several types, or one that is not read: only the command line's view of it is known.
        entry["opaque"] = True
    if "None" in kinds and entry["type"] != "bool":
        entry["nullable"] = True
    entry.update(_bounds(statement))
    return entry


def _collection(hint: Hint) -> dict[str, Any]:
    *elements, fixed = hint.values
    kinds = {element.kind: element for element in elements}
    nargs: str | int = fixed or "+"
    if "literal" in kinds:
        return {"type": "str", "nargs": nargs, "choices": sorted(kinds["literal"].values, key=str)}
    simple = next((kind for kind in ("int", "float") if kinds.keys() == {kind}), "str")
    return {"type": simple, "nargs": nargs}


def _bounds(statement: ast.AnnAssign) -> dict[str, Any]:
    if not (isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) == "Field"):
        return {}
    found = {}
    for keyword in statement.value.keywords:
        if keyword.arg in BOUNDS and isinstance(keyword.value, ast.Constant):
            found[keyword.arg] = keyword.value.value
    return found


# add_cli_args ------------------------------------------------------------------------------------


@dataclass
class CommandLine:
    """Replays ``add_cli_args``: which config class each ``*_kwargs`` holds, and what each flag is made of."""

    wheel: Wheel
    human_ints: set[str]
    kwargs: dict[str, str] = field(default_factory=dict)
    single: dict[str, tuple[str, str]] = field(default_factory=dict)
    overrides: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)

    def replay(self, function: ast.FunctionDef) -> None:
        """Follow one ``add_cli_args`` from top to bottom."""
        for statement in ast.walk(function):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
                self._add_argument(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=config)]):
                self.kwargs[name] = config
            case ast.Name(id=name), ast.Subscript():
                if (source := self._source(value)) is not None:
                    self.single[name] = source
            case ast.Subscript(value=owner, slice=ast.Constant(value="type")), _:
                if (source := self._source(owner)) is not None:
                    self.overrides.setdefault(source, {}).update(_type_of(value))
            case _:
                pass

    def _source(self, node: ast.expr) -> tuple[str, str] | None:
        """The (config class, field) that an expression such as ``cache_kwargs["block_size"]`` stands for."""
        match node:
            case ast.Name(id=name):
                return self.single.get(name)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))):
                return (self.kwargs[name], key) if name in self.kwargs else None
            case ast.Subscript(
                value=ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=config)]),
                slice=ast.Constant(value=str(key)),
            ):
                return config, key
            case ast.Dict(keys=[None, *_], values=[first, *_]):
                return self._source(first)
            case _:
                return None

    def _add_argument(self, call: ast.Call) -> None:
        names = _words(call.args)
        if not names:
            self.wheel.not_read.append(f"add_argument without a literal name: {ast.unparse(call)[:80]}")
            return
        entry: dict[str, Any] = {"type": "str"}
        explicit = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        for keyword in call.keywords:
            if keyword.arg is None:
                entry = self._from_field(names[0], keyword.value)
        entry.update(self._from_keywords(names[0], explicit))
        long_names = [name for name in names if name.startswith("--")]
        dest = explicit.get("dest")
        own = long_names[0].removeprefix("--").replace("-", "_")
        entry["field"] = dest.value if isinstance(dest, ast.Constant) else own
        if entry["type"] == "bool":
            names += [f"--no-{name.removeprefix('--')}" for name in long_names]
        if len(names) > 1:
            entry["aliases"] = names[1:]
        self.flags[names[0]] = entry

    def _from_field(self, flag: str, node: ast.expr) -> dict[str, Any]:
        source = self._source(node)
        if source is None:
            self.wheel.not_read.append(f"{flag}: arguments {ast.unparse(node)[:80]}")
            return {"type": "str"}
        config, name = source
        module, node_ = self.wheel.find_class(ARG_UTILS, config)
        fields = config_fields(self.wheel, module, node_)
        if name not in fields:
            self.wheel.not_read.append(f"{flag}: field {config}.{name}")
            return {"type": "str"}
        entry = describe(self.wheel, name, *fields[name])
        if entry["type"] == "int" and name in self.human_ints:
            entry["type"] = "human_int"
        entry.update(self.overrides.get(source, {}))
        return entry

    def _from_keywords(self, flag: str, explicit: dict[str, ast.expr]) -> dict[str, Any]:
        entry: dict[str, Any] = {}
        if "type" in explicit:
            entry.update(_type_of(explicit["type"]))
        if "action" in explicit:
            action = ast.unparse(explicit["action"])
            if action.endswith("BooleanOptionalAction"):
                entry["type"] = "bool"
            elif action in ("'store_true'", "'store_false'"):
                entry["type"] = "switch"
        if "choices" in explicit:
            entry.update(self._choices(flag, explicit["choices"]))
        return entry

    def _choices(self, flag: str, node: ast.expr) -> dict[str, Any]:
        match node:
            case ast.List():
                return {"choices": _words(node.elts)}
            case ast.Call(func=ast.Name(id="get_args"), args=[alias]):
                literal = next((h for h in hints(self.wheel, ARG_UTILS, alias) if h.kind == "literal"), None)
                if literal is not None:
                    return {"choices": list(literal.values)}
            case ast.BinOp(left=ast.List() as first):
                # A literal list plus what the machine's platform adds: known words, but not all of them.
                return {"some_choices": _words(first.elts)}
            case _:
                pass
        self.wheel.not_read.append(f"{flag}: choices {ast.unparse(node)[:80]}")
        return {}


def _words(nodes: Sequence[ast.expr]) -> list[str]:
    """The literal strings among ``nodes``."""
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _type_of(node: ast.expr) -> dict[str, Any]:
    text = ast.unparse(node)
    if text in ("int", "float", "str"):
        return {"type": text}
    if text == LOWER_UNDERSCORE:
        return {"lower_underscore": True}
    if "json.loads" in text:
        return {"type": "json"}
    return {"type": "str"}


def human_int_fields(wheel: Wheel) -> set[str]:
    """Fields whose value may be written as 8k or 1G: named inside ``_compute_kwargs``."""
    module = wheel.module(ARG_UTILS)
    assert module is not None
    names = {"max_model_len"}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef) and node.name == "_compute_kwargs":
            for inner in ast.walk(node):
                match inner:
                    case ast.Compare(left=ast.Name(id="name"), comparators=[ast.Tuple(elts=words)]):
                        names.update(_words(words))
                    case ast.Assign(
                        targets=[ast.Name(id="human_readable_int_args")], value=ast.Set(elts=words)
                    ):
                        names.update(_words(words))
                    case _:
                        pass
    return names


def add_cli_args(node: ast.ClassDef) -> ast.FunctionDef:
    """The class's own ``add_cli_args``."""
    return next(f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "add_cli_args")


def connectors(wheel: Wheel) -> list[str]:
    """Names registered with ``KVConnectorFactory``."""
    module = wheel.module(CONNECTORS)
    if module is None:
        wheel.not_read.append(CONNECTORS)
        return []
    return [
        str(call.args[0].value)
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).endswith("Factory.register_connector")
        and isinstance(call.args[0], ast.Constant)
    ]


def configs_behind(wheel: Wheel, flags: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Keys of every config that a flag takes as JSON, and of the configs nested in those."""
    described: dict[str, dict[str, Any]] = {}
    waiting = [entry["config"] for entry in flags.values() if "config" in entry]
    while waiting:
        name = waiting.pop(0)
        if name in described or name in OPAQUE_CONFIGS:
            continue
        home, node = wheel.find_class(wheel.homes[name], name)
        keys = {}
        for key, (origin, statement) in config_fields(wheel, home, node).items():
            if key.startswith("_"):
                continue
            keys[key] = describe(wheel, key, origin, statement)
            if "config" in keys[key]:
                waiting.append(keys[key]["config"])
        described[name] = keys
    return described


def inspect(path: Path) -> dict[str, Any]:
    """Everything recorded about the vLLM in the wheel at ``path``."""
    with zipfile.ZipFile(path) as archive:
        wheel = Wheel(archive)
        line = CommandLine(wheel, human_int_fields(wheel))
        module, engine_args = wheel.find_class(ARG_UTILS, "EngineArgs")
        _, async_args = wheel.find_class(ARG_UTILS, "AsyncEngineArgs")
        line.replay(add_cli_args(engine_args))
        line.replay(add_cli_args(async_args))
        fields = {**config_fields(wheel, module, engine_args), **config_fields(wheel, module, async_args)}
        configs = configs_behind(wheel, line.flags)
        if "KVTransferConfig" in configs:
            configs["KVTransferConfig"]["kv_connector"]["known"] = connectors(wheel)
        reached = {entry["field"] for entry in line.flags.values()}
        return {
            "vllm": path.name.split("-")[1],
            "provenance": {
                "wheel": path.name,
                "sha256": _sha256(path),
                "index": "https://pypi.org/project/vllm/",
                "made_by": "scripts/vllm_engine_args.py",
                "sources": sorted(wheel.read),
                "not_read": sorted(set(wheel.not_read)),
            },
            "fields_without_flag": sorted(fields.keys() - reached),
            "flags": dict(sorted(line.flags.items())),
            "configs": dict(sorted(configs.items())),
        }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def render(record: dict[str, Any]) -> str:
    """JSON with one flag or config key a line, so that a new release shows as a readable diff."""
    parts = []
    for key, value in record.items():
        if key == "flags":
            rows = [f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items()]
            text = "{\n" + ",\n".join(rows) + "\n  }"
        elif key == "configs":
            blocks = []
            for name, keys in value.items():
                rows = [f"      {json.dumps(row)}: {json.dumps(entry)}" for row, entry in keys.items()]
                blocks.append(f"    {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n    }")
            text = "{\n" + ",\n".join(blocks) + "\n  }"
        elif isinstance(value, dict):
            rows = [f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items()]
            text = "{\n" + ",\n".join(rows) + "\n  }"
        else:
            text = json.dumps(value)
        parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def download(version: str, folder: Path) -> Path:
    """The x86-64 wheel of ``version`` from the configured package index."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    # The source is the same in every wheel; the platform is named so that this works on any machine.
    for glibc in ("2_35", "2_31", "2_28"):
        command += ["--platform", f"manylinux_{glibc}_x86_64"]
    command += ["--python-version", "3.12", "--dest", str(folder), f"vllm=={version}"]
    subprocess.run(command, check=True)
    return next(folder.glob(f"vllm-{version}*.whl"))


def main(argv: Sequence[str] | None = None) -> None:
    """Record each version named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="+", help="vLLM versions, or paths of wheels already downloaded")
    parser.add_argument("--out", type=Path, default=DATA)
    args = parser.parse_args(argv)
    for version in args.versions:
        with tempfile.TemporaryDirectory(prefix="vllm-wheel-") as folder:
            path = Path(version) if version.endswith(".whl") else download(version, Path(folder))
            record = inspect(path)
        target = args.out / f"vllm-engine-args-{record['vllm']}.json"
        target.write_text(render(record), encoding="utf-8")
        print(f"{target}: {len(record['flags'])} flags, {target.stat().st_size} bytes")
        for gap in record["provenance"]["not_read"]:
            print(f"  not read: {gap}")


if __name__ == "__main__":
    main()
