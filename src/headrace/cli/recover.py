"""`headrace recover`: what became of a query whose machine was lost, and the repair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.checkpoint.reconcile import WITHDRAWN
from headrace.coordinator.recover import Recovery, refused, told
from headrace.errors import HeadraceError
from headrace.options import default_local
from headrace.spark.checkpoint_files import LocalFiles

Say = Callable[[str], None]


def recover(checkpoint: str, local: Path | None, yes: bool, say: Say) -> int:
    """Look, say what was found, and repair it with `yes`; the exit code."""
    path = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    if not (path / "metadata").is_file():
        say(f"{checkpoint} is not a checkpoint of a streaming query on this file system")
        say("  → for a checkpoint on another file system start the query with hr.start: it does the same")
        return 2
    recovery = Recovery(LocalFiles(f"file:{path.absolute()}"), local or Path(default_local()))
    try:
        return _recover(recovery, str(path), yes, say)
    except HeadraceError as error:
        say(str(error))
        return 1


def _recover(recovery: Recovery, root: str, yes: bool, say: Say) -> int:
    found = recovery.look()
    for line in found.lines():
        say(line)
    if found.decision.action == "refuse":
        say(str(refused(root, found.decision)))
        return 1
    if found.decision.action == "nothing" and not found.redoable:
        say("nothing to do")
        return 0
    if not yes:
        say(_would(found.decision.batch, bool(found.redoable)))
        return 0
    done = recovery.repair().decision
    say(told(done) if done.action == "withdraw" else "all of it is on shared storage now")
    return 0


def _would(batch: int | None, redoable: bool) -> str:
    steps = ["finish the commits in this machine's log"] if redoable else []
    if batch is not None:
        steps.append(f"move batch {batch} of Spark's commit log to {WITHDRAWN}/, for hr.start to replay it")
    return f"with --yes this would {' and '.join(steps)}"
