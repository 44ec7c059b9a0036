"""Ask Dynamo's own argument parsers whether they accept given command lines.

Run it under the Python of the Dynamo release in question; beside Dynamo it needs the standard library only::

    /opt/dyn/1.4.2/bin/python tests/parsers/accept.py < command_lines.json > answers.json

Standard input is a JSON list of ``{"module": "dynamo.frontend", "argv": [flags], "env": {name: value}}``;
standard output is a JSON list with one ``{"accepted", "error", "parsed", "left_over"}`` for each. Every
module is imported once, so a hundred command lines cost little more than one.

It is stricter than Dynamo in four ways, each of which would otherwise let a mistake pass: abbreviated flags
are refused; so is an environment variable that carries a value outside its flag's choices (argparse never
checks defaults); asking for help or the version is not acceptance; the caller's own ``DYN_*`` variables are
not seen.

What it cannot see: checks that Dynamo makes only after vLLM or TensorRT-LLM has parsed its share.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import functools
import importlib
import importlib.util
import io
import json
import logging
import os
import pathlib
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict


class Question(TypedDict, total=False):
    """One command line: the module, its flags, and the environment it would be started with."""

    module: str
    argv: list[str]
    env: dict[str, str]


class Answer(TypedDict):
    """What the parser said. ``left_over`` are the flags that Dynamo hands on to the engine."""

    accepted: bool
    error: str | None
    parsed: dict[str, Any]
    left_over: list[str]


Parsed = tuple[Any, list[str]]
Parse = Callable[[Sequence[str]], Parsed]


def load_frontend() -> Parse:
    """The parser of ``dynamo.frontend``, which reads ``sys.argv`` only."""
    main = importlib.import_module("dynamo.frontend.main")

    def parse(argv: Sequence[str]) -> Parsed:
        saved = sys.argv
        sys.argv = ["dynamo.frontend", *argv]
        try:
            config, _, _ = main.parse_args()
        finally:
            sys.argv = saved
        return config, []

    return parse


def load_mocker() -> Parse:
    """The parser of ``dynamo.mocker``."""
    args = importlib.import_module("dynamo.mocker.args")
    # The default endpoint is made from DYN_NAMESPACE at import, so each command line needs its own import;
    # only this one module is run again.
    return lambda argv: (importlib.reload(args).parse_args(list(argv)), [])


def load_trtllm() -> Parse:
    """The parser of ``dynamo.trtllm``; TensorRT-LLM itself may be missing."""
    _stand_in_for_tensorrt_llm()
    args = importlib.import_module("dynamo.trtllm.args")
    return lambda argv: (args.parse_args(list(argv)), [])


def load_vllm() -> Parse:
    """Dynamo's half of the parser of ``dynamo.vllm``; what belongs to vLLM comes back as left over.

    ``dynamo.vllm.args`` imports vLLM, so its steps are taken here with the two groups it is made of.
    """
    runtime = importlib.import_module("dynamo.common.configuration.groups.runtime_args")
    backend = importlib.import_module("dynamo.vllm.backend_args")
    config_type: Any = type("Config", (runtime.DynamoRuntimeConfig, backend.DynamoVllmConfig), {})
    # Later releases let a worker take router flags, with a parser of their own, before vLLM sees the rest.
    router: Any = None
    if importlib.util.find_spec("dynamo.common.configuration.groups.router_args") is not None:
        router = importlib.import_module("dynamo.common.configuration.groups.router_args")

    def parse(argv: Sequence[str]) -> Parsed:
        parser = argparse.ArgumentParser(description="Dynamo vLLM worker configuration")
        runtime.DynamoRuntimeArgGroup().add_arguments(parser)
        backend.DynamoVllmArgGroup().add_arguments(parser)
        namespace, left_over = parser.parse_known_args(list(argv))
        config = config_type.from_cli_args(namespace)
        if hasattr(router, "parse_worker_router_config"):
            config.router_advertisement, left_over = router.parse_worker_router_config(left_over)
        runtime.DynamoRuntimeConfig.validate(config)
        backend.DynamoVllmConfig.validate(config)
        return config, left_over

    return parse


LOADERS: dict[str, Callable[[], Parse]] = {
    "dynamo.frontend": load_frontend,
    "dynamo.mocker": load_mocker,
    "dynamo.trtllm": load_trtllm,
    "dynamo.vllm": load_vllm,
}


@functools.cache
def parser_of(module: str) -> Parse:
    """The parser of ``module``, imported once; what a command line's environment says plays no part in it."""
    with _environment({}), contextlib.redirect_stdout(sys.stderr):
        return LOADERS[module]()


def ask(question: Question) -> Answer:
    """Put one command line to its parser; never raises, whatever the parser does."""
    module = question.get("module", "")
    if module not in LOADERS:
        return _refused(f"unknown module {module!r}; known: {', '.join(sorted(LOADERS))}")
    output = io.StringIO()
    seen: list[argparse.ArgumentParser] = []
    try:
        # Importing Dynamo clears the handlers of the root logger, so it comes before listening to them.
        parse = parser_of(module)
        with (
            _environment(question.get("env", {})),
            _heard(output),
            _no_abbreviations(seen),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            config, left_over = parse(question.get("argv", []))
            wrong = _values_outside_choices(seen, config, question.get("env", {}))
    except SystemExit as exit_:
        return _refused(f"exit {_exit_code(exit_)}: {_last_words(output.getvalue())}")
    except Exception as error:  # whatever it is, it would have ended the worker
        return _refused(f"{type(error).__name__}: {error}")
    if wrong:
        return _refused("; ".join(wrong))
    return {"accepted": True, "error": None, "parsed": _plain_values(config), "left_over": left_over}


@contextlib.contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    saved = dict(os.environ)
    # An ambient DYN_* is a default that no command line shows, so an answer would depend on who asked.
    for name in [name for name in os.environ if name.startswith("DYN_")]:
        del os.environ[name]
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


@contextlib.contextmanager
def _heard(output: io.StringIO) -> Iterator[None]:
    """Collect errors that a parser logs instead of printing; the frontend names unknown flags only there."""
    handler = logging.StreamHandler(output)
    handler.setLevel(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        root.removeHandler(handler)


@contextlib.contextmanager
def _no_abbreviations(seen: list[argparse.ArgumentParser]) -> Iterator[None]:
    """Make every parser built meanwhile refuse abbreviated flags, and note it in ``seen``."""
    original = argparse.ArgumentParser.__init__

    def strict(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "allow_abbrev": False})
        seen.append(self)

    argparse.ArgumentParser.__init__ = strict  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.__init__ = original  # type: ignore[method-assign]


def _values_outside_choices(
    parsers: Sequence[argparse.ArgumentParser], config: Any, env: Mapping[str, str]
) -> list[str]:
    """Values in force that came from ``env`` and that argparse would have refused as a flag."""
    wrong = []
    for action in (action for parser in parsers for action in parser._actions):
        if action.choices is None:
            continue
        value = action.default
        # A default may lie outside the choices by design ("_auto_"); only the environment's is wrong.
        sources = [name for name, text in env.items() if text == value]
        if sources and value not in action.choices and getattr(config, action.dest, None) == value:
            choices = ", ".join(str(_plain(choice)) for choice in action.choices)
            flag = action.option_strings[0]
            wrong.append(f"{'/'.join(sources)}={value}: invalid for {flag} (choose from {choices})")
    return wrong


def _stand_in_for_tensorrt_llm() -> None:
    if "tensorrt_llm" in sys.modules or importlib.util.find_spec("tensorrt_llm") is not None:
        return
    limits = {"max_batch_size": 2048, "max_num_tokens": 8192, "max_seq_len": None, "max_beam_width": 1}
    fields = {name: types.SimpleNamespace(default=value) for name, value in limits.items()}
    package = types.ModuleType("tensorrt_llm")
    llmapi = types.ModuleType("tensorrt_llm.llmapi")
    vars(llmapi)["BuildConfig"] = type("BuildConfig", (), {"model_fields": fields})
    vars(package)["llmapi"] = llmapi
    sys.modules["tensorrt_llm"] = package
    sys.modules["tensorrt_llm.llmapi"] = llmapi


def _refused(error: str) -> Answer:
    return {"accepted": False, "error": error, "parsed": {}, "left_over": []}


def _exit_code(exit_: SystemExit) -> object:
    return 0 if exit_.code is None else exit_.code


def _last_words(output: str) -> str:
    """The line that says what is wrong: argparse and Dynamo both print it last, after any usage text."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return "no message"
    return re.sub(r"^.*?: error: ", "", lines[-1])


def _plain_values(config: Any) -> dict[str, Any]:
    values = {name: _plain(value) for name, value in vars(config).items() if not name.startswith("_")}
    return {name: value for name, value in values.items() if value is not Ellipsis}


def _plain(value: Any) -> Any:
    """``value`` as JSON can hold it; ``...`` where it cannot."""
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): item for key, item in ((k, _plain(v)) for k, v in value.items()) if item is not ...}
    if isinstance(value, (list, tuple, set)):
        return [item for item in map(_plain, value) if item is not ...]
    if type(value).__module__.startswith("dynamo.") and hasattr(value, "__dict__"):
        return _plain_values(value)
    return ...


def main() -> None:
    """Answer the questions on standard input."""
    # Native code logs to file descriptor 1 as it likes; the answers must stay readable.
    answers_fd = os.dup(1)
    os.dup2(2, 1)
    questions: list[Question] = json.load(sys.stdin)
    answers = [ask(question) for question in questions]
    with os.fdopen(answers_fd, "w", encoding="utf-8") as out:
        json.dump(answers, out)
        out.write("\n")


if __name__ == "__main__":
    main()
