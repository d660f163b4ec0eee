"""The last output of every benchmark: a table for people and one JSON line for programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def machine() -> dict[str, Any]:
    """The machine on which the figures were measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30), 1),
        "system": platform.system(),
        "arch": platform.machine(),
        "python": platform.python_version(),
    }


def commit() -> str:
    """The commit of the running source tree, `+` when it was changed; `unknown` outside a checkout."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        finished = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        return finished.stdout.strip() if finished.returncode == 0 else ""

    head = git("rev-parse", "--short", "HEAD")
    return f"{head}{'+' if git('status', '--porcelain') else ''}" if head else "unknown"


def mb(size_bytes: int) -> int:
    """Megabytes of 10^6 bytes, for limits and for measured memory alike, so that they can be compared."""
    return round(size_bytes / 1e6)


def show(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def last_line(bench: str, ratios: Mapping[str, float], **more: Any) -> str:
    """The JSON object that a benchmark prints last."""
    rounded = {name: round(value, 3) for name, value in ratios.items()}
    return json.dumps({"bench": bench, "ratios": rounded, **more, "machine": machine(), "commit": commit()})
