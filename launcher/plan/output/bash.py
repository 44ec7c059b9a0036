"""The plan as a bash script that runs the same processes without the launcher.

For reading, for copying into a ticket, and as the other side of our benchmarks. It starts and stops; it does not
supervise, probe or restart, and says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from launcher.plan.model import MASK, Plan, Process, is_secret

HEAD = """\
#!/usr/bin/env bash
# {target} on {engine}: the processes that the launcher starts (plan {hash}), without its supervision.
# Readiness, restarts, drains and log handling are the launcher's; a worker that dies here stays dead.
set -euo pipefail
RUN=$(mktemp -d "${{TMPDIR:-/tmp}}/{target}.XXXXXX")
mkdir -p "$RUN/discovery" "$RUN/logs"
pids=() ports=() keeper=
stop() {{
  trap '' TERM INT
  trap - EXIT
  kill -TERM "${{pids[@]}}" $keeper 2>/dev/null || true
  wait || true
  rm -rf "$RUN"
}}
trap stop EXIT
trap 'exit 0' TERM INT
"""
KEEPER = """\
# Dynamo 1.3.1 forgets healthy workers whose discovery files nobody touches for 10 s; those of dead ones must expire.
alive() { local state; read -r _ _ state _ < "/proc/$1/stat" && [[ $state != [TXZ] ]]; }
keep() {
  local gone n file
  while sleep 2; do
    gone=none
    for n in "${!pids[@]}"; do
      alive "${pids[n]}" && continue
      for file in $(grep -ls ":${ports[n]}/" "$RUN"/discovery/v1/instances/*); do gone+="|${file##*%2F}"; done
    done
    find "$RUN/discovery" -type f | grep -vE "($gone)\\$" | xargs -r touch -c || true
  done
}
keep 2>/dev/null &
keeper=$!"""


def render(plan: Plan) -> str:
    """The script. Secrets are not in it: their variables are taken from the caller's environment."""
    lines = [HEAD.format(target=plan.target, engine=plan.engine, hash=plan.hash())]
    if plan.notes:
        lines += [f"# {note}" for note in plan.notes]
    lines += list(_scrub(plan))
    if not plan.join.alone:
        lines += list(_peers())
    written: set[str] = set()
    for process in plan.processes:
        for path, text in process.files.items():
            if path not in written:
                written.add(path)
                lines += list(_file(path, text, plan))
    for process in plan.processes:
        lines += ["", *_process(process, plan)]
    lines += ["", KEEPER, "", 'echo "started ${#pids[@]} processes; logs in $RUN/logs"', "wait"]
    return "\n".join(lines) + "\n"


def _peers() -> Iterator[str]:
    yield "# The other nodes' events, tcp://ADDRESS:PORT of each (see their plans). The launcher finds them by itself."
    yield 'printf "%s\\n" ${EVENT_PEERS:-} > "$RUN/ev.peers"'


def _scrub(plan: Plan) -> Iterator[str]:
    patterns = "|".join(plan.scrub)
    if patterns:
        yield "# Inherited variables that would mislead the engines."
        yield f'for name in $(compgen -e); do case $name in {patterns}) unset "$name" ;; esac; done'


def _file(path: str, text: str, plan: Plan) -> Iterator[str]:
    shown = _word(path, plan)
    yield f'mkdir -p "$(dirname {shown})"'
    yield f"cat > {shown} <<'END_OF_FILE'"
    yield text.rstrip("\n")
    yield "END_OF_FILE"


def _process(process: Process, plan: Plan) -> Iterator[str]:
    detail = [process.role.value]
    if process.gpus:
        detail.append("GPU " + ",".join(process.gpus))
    detail += [f"{purpose} {port}" for purpose, port in process.ports.items()]
    yield f"# {process.name}: {', '.join(detail)}"
    yield "env \\"
    for name, value in process.env.items():
        if is_secret(name) and value:
            yield f'  {name}="${{{name}:?not set}}" \\'
        else:
            yield f"  {name}={_word(value, plan)} \\"
    words = [_word(argument, plan) for argument in process.argv]
    yield "  " + _wrapped(words)
    yield f'  > "$RUN/logs/{process.name}.log" 2>&1 &'
    yield f"pids+=($!) ports+=({process.ports.get('rpc', 0)})"


def _wrapped(words: list[str]) -> str:
    """Words with a line break before each flag, so that a diff shows one flag a line."""
    text = ""
    for word in words:
        if text and word.startswith("-") and len(word) > 2:
            text += " \\\n    " + word
        else:
            text += (" " if text else "") + word
    return text + " \\"


def _word(text: str, plan: Plan) -> str:
    """A shell word; the run's folder becomes the script's own."""
    if text == MASK:
        return "''"
    if plan.run_dir in text:
        parts = text.split(plan.run_dir)
        return '"$RUN"'.join(shlex.quote(part) if part else "" for part in parts)
    return shlex.quote(text)
