"""`headrace doctor`: verifies every checksum and reference of a query's state, and suggests what to do."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console

from headrace.errors import HeadraceError
from headrace.inspect.doctor import Report, examine
from headrace.inspect.state import State

_STYLES = {"damage": "bold red", "missing": "bold red", "note": "yellow"}


def doctor(checkpoint: str, as_json: bool, console: Console) -> int:
    """Examine a checkpoint; the exit code is 1 where something is damaged or missing."""
    try:
        with State(checkpoint) as state:
            report = examine(state)
    except HeadraceError as error:
        if as_json:
            print(error.to_json())
        else:
            console.print(str(error), markup=False, highlight=False)
        return 2
    if as_json:
        print(json.dumps({"healthy": report.is_healthy, **asdict(report)}))
    else:
        _show(report, console)
    return 0 if report.is_healthy else 1


def _show(report: Report, console: Console) -> None:
    for finding in report.findings:
        where = f" {finding.operator}:" if finding.operator else ""
        console.print(f"[{_STYLES[finding.level]}]{finding.level}[/]{where}", end=" ")
        console.print(finding.what, markup=False, highlight=False, soft_wrap=True)
        console.print(f"  → {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
    size = f"{report.bytes / 1e6:,.1f} MB"
    console.print(f"verified {report.manifests:,} manifests and {report.files:,} files, {size}")
    whole = "[bold green]the state is whole[/]"
    console.print(whole if report.is_healthy else "[bold red]the state is not whole[/]")
