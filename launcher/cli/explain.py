"""Explain a finding's code: what lies behind it, and where it comes from."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator

from launcher.checks import background, evidence, registry
from launcher.checks.base import Check
from launcher.findings import Exit, Finding, LauncherError, code_fix


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("code", nargs="?", help="a code as findings show it, such as kv-events-off")


def run(args: argparse.Namespace) -> int:
    """Print a code's background; without a code, all codes by group."""
    if args.code is None:
        sys.stdout.write("\n".join(_listing()) + "\n")
        return Exit.OK
    # As it is copied from a log: `error[gpu-none]:`.
    code = re.sub(r"^\w+\[|\]:?$", "", args.code)
    text = background.background(code)
    if text is None:
        raise LauncherError(
            Finding(
                code="command-line",
                what=f"there is no finding with the code {code!r}",
                where="the command line",
                fix=code_fix(code, background.codes()),
            )
        )
    sys.stdout.write("\n".join(_explained(code, text)) + "\n")
    return Exit.OK


def _explained(code: str, text: str) -> Iterator[str]:
    check = next((check for check in registry.CHECKS if code in check.codes), None)
    group = registry.group_of(code)
    yield code + (f" (a check of the {group.name})" if group else "")
    for paragraph in text.split("\n\n"):
        yield ""
        yield from textwrap.wrap(" ".join(paragraph.split()), 100)
    if check is None:
        return
    if links := list(dict.fromkeys(_links(check, code))):
        yield ""
        yield from (f"evidence: {link}" for link in links)
    if len(check.codes) > 1:
        yield ""
        yield f"the same check says: {', '.join(each for each in check.codes if each != code)}"
    yield ""
    if check.ignorable:
        yield f"to start anyway: --ignore {code}=REASON (the reason is logged)"
    else:
        yield "it cannot be ignored: nothing could be planned with it"


def _links(check: Check, code: str) -> Iterator[str]:
    """The evidence that the check's source names: of this code where it can be told, else of all of its findings."""
    source = inspect.getsource(check.run)
    parts = source.split("yield ")
    own = [part for part in parts if f'"{code}"' in part] or parts
    for part in own:
        for link in re.findall(r'link="([^"]+)"', part):
            yield from evidence.addresses(link)


def _listing() -> Iterator[str]:
    for group in registry.GROUPS:
        yield f"{group.name}:"
        codes = [code for check in group.checks for code in check.codes]
        yield from textwrap.wrap(
            "  ".join(codes), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    yield "other:"
    yield from textwrap.wrap(
        "  ".join(background.OTHERS), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
