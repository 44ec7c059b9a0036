"""An order over a launcher's control socket, as bytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any


async def order(path: Path, line: bytes) -> list[dict[str, Any]]:
    """Send the line; returns every answer until the launcher hangs up."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(line)
    answers = [json.loads(answer) for answer in (await reader.read()).splitlines()]
    writer.close()
    return answers
