"""`headrace recover`: reports the damage after a machine was lost, and repairs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import HeadraceError
from headrace.plan.options import default_local
from headrace.recovery.reconcile import WITHDRAWN
from headrace.recovery.recover import Recovery, refused, withdrawal_text

Echo = Callable[[str], None]


def recover(checkpoint: str, local: Path | None, yes: bool, echo: Echo, clock: Clock = SYSTEM_CLOCK) -> int:
    """Inspects a checkpoint, reports the result, repairs it with `yes`; returns the exit code."""
    path = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    if not (path / "metadata").is_file():
        echo(f"{checkpoint} is not a checkpoint of a streaming query on this file system")
        echo("  → for a checkpoint on another file system start the query with hr.start: it does the same")
        return 2
    files = LocalFiles(f"file:{path.absolute()}")
    recovery = Recovery(files, local or Path(default_local()), clock)
    try:
        return _recover(recovery, str(path), yes, echo)
    except HeadraceError as error:
        echo(str(error))
        return 1


def _recover(recovery: Recovery, root: str, yes: bool, echo: Echo) -> int:
    finding = recovery.look()
    for line in finding.lines():
        echo(line)
    if finding.decision.action == "refuse":
        echo(str(refused(root, finding.decision)))
        return 1
    if finding.decision.action == "nothing" and not finding.redoable:
        echo("nothing to do")
        return 0
    if not yes:
        echo(_would(finding.decision.batch, bool(finding.redoable)))
        return 0
    decision = recovery.repair().decision
    echo(
        withdrawal_text(decision) if decision.action == "withdraw" else "all of it is on shared storage now"
    )
    return 0


def _would(batch: int | None, redoable: bool) -> str:
    steps = ["finish the commits in this machine's log"] if redoable else []
    if batch is not None:
        steps.append(f"move batch {batch} of Spark's commit log to {WITHDRAWN}/, for hr.start to replay it")
    return f"with --yes this would {' and '.join(steps)}"
