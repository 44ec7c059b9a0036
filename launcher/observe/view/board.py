"""A /status page as a table to look at; the same for `launcher status` and the live view. Needs rich."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

STYLES = {
    "ready": "green",
    "loading": "cyan",
    "starting": "cyan",
    "waiting": "dim",
    "draining": "yellow",
    "backoff": "yellow",
    "stopped": "dim",
    "failed": "bold red",
}
BAR = 10
"""Cells of a progress bar."""
FAULTS = 3
"""Newest faults shown."""
REASONS = 4
ROOMY, NARROW = 80, 60
"""Columns of a screen below which there is no room for each thing that is known of a process."""
Page = Mapping[str, Any]


def board(page: Page, *, most: int | None = None, columns: int = ROOMY) -> RenderableType:
    """The whole page; `most`: processes shown at most, those that are well left out first; `columns`: of the screen."""
    return Group(*_parts(page, most, columns))


def rows_besides(page: Page) -> int:
    """Rows of the board that are not processes."""
    extra = sum(line(page) is not None for line in (_discovery, _serving, _client_errors))
    return 2 + len((page.get("reasons") or ())[:REASONS]) + extra + len(_faults(page))


def _parts(page: Page, most: int | None, width: int) -> Iterator[RenderableType]:
    yield _title(page)
    if (line := _discovery(page)) is not None:
        yield line
    for reason in (page.get("reasons") or ())[:REASONS]:
        yield Text(f"  waiting for: {_clean(reason)}", style="yellow", no_wrap=True, overflow="ellipsis")
    yield _processes(page, most, width)
    if (line := _serving(page)) is not None:
        yield line
    if (line := _client_errors(page)) is not None:
        yield line
    for fault in _faults(page):
        yield Text(fault, style="red", no_wrap=True, overflow="ellipsis")


def _title(page: Page) -> Text:
    title = Text(no_wrap=True, overflow="ellipsis")
    if page.get("drain", {}).get("draining"):
        title.append("DRAINING", style="bold yellow").append(f" {_age(page['drain']['seconds'])}")
    elif page.get("ready"):
        title.append("READY", style="bold green")
        if page.get("degraded"):
            title.append(f" degraded ({_lacking(page)})", style="yellow")
    else:
        title.append("NOT READY", style="bold yellow")
    if _discovery(page) is not None:
        title.append(f", {page['discovery'].get('backend', 'discovery')} unreachable", style="bold yellow")
    simulated = " (simulated)" if page.get("simulated") else ""
    title.append(f"  {page.get('target')}: {page.get('model')} on {page.get('engine')}{simulated}")
    title.append(f"  {page.get('url')}  up {_age(page.get('uptime_s'))}", style="dim")
    return title


def _discovery(page: Page) -> Text | None:
    """Why discovery cannot be asked; None where it can, or where there is none to ask."""
    found = page.get("discovery") or {}
    if found.get("reachable", True):
        return None
    text = f"  {found.get('backend', 'discovery')}: {_clean(found.get('error') or 'no answer')}"
    return Text(text, style="yellow", no_wrap=True, overflow="ellipsis")


def _lacking(page: Page) -> str:
    roles = (page.get("capacity") or {}).items()
    return ", ".join(
        f"{role} {each['ready']} of {each['planned']}"
        for role, each in roles
        if each["ready"] < each["planned"]
    )


def _processes(page: Page, most: int | None, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    processes = list(page.get("processes") or ())
    figures = page.get("workers") or {}
    gpus = {each["name"]: each.get("gpus") or [] for each in (page.get("plan") or {}).get("processes", ())}
    memory = {str(gpu["index"]): gpu for gpu in page.get("gpus") or ()}
    memory |= {gpu["uuid"]: gpu for gpu in page.get("gpus") or ()}
    columns = ["process", "state", "progress", "up", "restarts"]
    if any(gpus.values()):
        columns.append("gpu")
    if figures:
        columns += ["kv", "running"]
    if width < ROOMY:
        # The state must stay: without room it is the last to be cut, and the reasons above tell of the progress.
        columns = [column for column in columns if column not in ("progress", "restarts")]
    if width < NARROW:
        columns = [column for column in columns if column in ("process", "state", "up")]
    for column in columns:
        right = column in ("up", "restarts", "kv", "running")
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=_longest(processes, column) if column in ("process", "state") else None,
        )
    shown = _chosen(processes, most)
    for process in shown:
        figure = figures.get(process["name"], {})
        cells: dict[str, str | Text] = {
            "process": process["name"],
            "state": Text(process["state"], style=_style(process)),
            "progress": _progress(process),
            "up": _age(process.get("uptime_s")),
            "restarts": str(process["restarts"] or "") if "restarts" in process else "",
            "gpu": _gpu(gpus.get(process["name"], []), memory),
            "kv": f"{figure['kv_usage']:.0%}" if "kv_usage" in figure else "",
            "running": f"{figure['running']:.0f}" if "running" in figure else "",
        }
        table.add_row(*(cells[column] for column in columns))
    if len(shown) < len(processes):
        table.add_row(f"and {len(processes) - len(shown)} more", *[""] * (len(columns) - 1), style="dim")
    return table


def _longest(processes: list[Page], column: str) -> int:
    field = "name" if column == "process" else column
    return max((len(process[field]) for process in processes), default=0)


def _chosen(processes: list[Page], most: int | None) -> list[Page]:
    if most is None or len(processes) <= most:
        return processes
    unwell = [process for process in processes if not _well(process)]
    well = [process for process in processes if _well(process)]
    kept = {process["name"] for process in [*unwell, *well][: max(1, most - 1)]}
    return [process for process in processes if process["name"] in kept]


def _well(process: Page) -> bool:
    return bool(process.get("healthy", process["state"] == "ready"))


def _style(process: Page) -> str:
    return (
        "bold red" if process["state"] == "ready" and not _well(process) else STYLES.get(process["state"], "")
    )


def _progress(process: Page) -> Text:
    """How far the loading is: phases reached of those that the engine announces."""
    if process.get("detail"):
        return Text(_clean(process["detail"]), style="yellow")
    reached, planned = process.get("phases") or {}, process.get("planned_phases") or []
    if process["state"] == "ready":
        return Text(
            f"in {process['ready_s']:.1f} s" if process.get("ready_s") is not None else "", style="dim"
        )
    if not planned or process["state"] not in ("starting", "loading"):
        return Text(process.get("phase") or "", style="dim")
    done = max((planned.index(name) + 1 for name in reached if name in planned), default=0)
    full = BAR * done // (len(planned) + 1)
    bar = Text("━" * full, style="cyan").append("━" * (BAR - full), style="dim")
    return bar.append(f" {process.get('phase') or 'starting'}", style="").append(
        f" {done}/{len(planned)}", style="dim"
    )


def _gpu(names: list[str], memory: Mapping[str, Any]) -> str:
    found = [memory[name] for name in names if name in memory]
    label = ",".join(name[:8] for name in names)
    if not found:
        return label
    used, total = (sum(gpu[field] for gpu in found) / 1024 for field in ("used_mib", "total_mib"))
    return f"{label}: {used:.1f}/{total:.0f} GiB"


def _serving(page: Page) -> Text | None:
    figures = page.get("serving")
    if not figures:
        return None
    parts = [f"{figures['requests_per_s']:.1f} req/s", f"{figures['output_tokens_per_s']:,.0f} tok/s"]
    if figures.get("ttft_s") is not None:
        parts.append(f"TTFT {figures['ttft_s'] * 1000:.0f} ms")
    if figures.get("itl_s") is not None:
        parts.append(f"ITL {figures['itl_s'] * 1000:.1f} ms")
    if figures.get("in_flight") is not None:
        parts.append(f"{figures['in_flight']} in flight")
    return Text(f"{'  '.join(parts)}  (last {figures['window_s']:.0f} s)", no_wrap=True, overflow="ellipsis")


def _client_errors(page: Page) -> Text | None:
    """A client's mistakes are no trouble of the deployment: only their number is told."""
    found = page.get("client_errors") or {}
    if not found.get("count"):
        return None
    window = "minute" if found["window_s"] == 60 else f"{found['window_s']:.0f} s"
    return Text(f"4xx: {found['count']} in the last {window}", style="dim", no_wrap=True, overflow="ellipsis")


def _faults(page: Page) -> list[str]:
    found = [(fault["time"], fault["text"]) for fault in page.get("faults") or ()]
    found += [(error["time"], f"{error['process']}: {error['line']}") for error in page.get("errors") or ()]
    newest = sorted(found)[-FAULTS:]
    return [f"{time.strftime('%H:%M:%S', time.gmtime(at))}  {_clean(text)}" for at, text in newest]


def _clean(text: str) -> str:
    """One line without control characters: what a process says must not move our cursor."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
