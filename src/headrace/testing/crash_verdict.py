"""Compares what a crash round left on disk with the model: output batch by batch, then state.

Commits that run behind their batches may have been killed after the last one: they are finished from the
machine's log first, as a start of the query would do it. Nothing may be missing then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.coordinator.recover import Recovery
from headrace.errors import HeadraceError
from headrace.spark.checkpoint_files import LocalFiles
from headrace.spec import TIME, WINDOW_END, WINDOW_START, OperatorSpec
from headrace.testing.crash_batches import NotAllRead, batches_as_read, ends_of
from headrace.testing.crash_input import batches
from headrace.testing.crash_model import Expected, Output, Values, expected
from headrace.testing.crash_plan import Plan
from headrace.testing.state_reader import StateAt, read_state

_SHOWN = 3
_KNOWN = ("in", "out", "ck", "round.json", "done")
_KNOWN_IN_LANE = ("local", "spark", "tmp", "work", "warehouse", "driver.log", "round", "over")


def problems(folder: Path, plan: Plan) -> list[str]:
    """Everything that differs from the uninterrupted run; empty when nothing does."""
    try:
        read = batches_as_read(batches(plan.seed)[: plan.files], ends_of(folder / "ck"))
    except NotAllRead as error:
        return [str(error)]
    model = expected(plan.kind, read)
    found = _output_problems(folder, model)
    found += _recovery_problems(folder) or _state_problems(folder, model)
    return found + _stray_problems(folder) + _log_problems(folder, len(read))


def _recovery_problems(folder: Path) -> list[str]:
    """Finish what the log has; anything else that a recovery would have to do is a loss."""
    try:
        recovery = Recovery(LocalFiles((folder / "ck").as_uri()), folder.parent / "local")
        decision = recovery.repair().decision
    except HeadraceError as error:
        return [f"the checkpoint cannot be recovered: {error}"]
    return [] if decision.action == "nothing" else [f"a batch had to be taken back: {decision.reason}"]


def emitted(folder: Path, batch: int) -> Output:
    """The rows that Spark's file sink has committed for a batch; an uncommitted file does not count."""
    lines = (folder / "out" / "_spark_metadata" / str(batch)).read_text().splitlines()[1:]
    found: Output = Counter()
    for line in lines:
        path = Path(unquote(urlsplit(json.loads(line)["path"]).path))
        found.update(map(_hashable, (row.values() for row in pq.read_table(path).to_pylist())))
    return found


def _query(folder: Path) -> str:
    return str(json.loads((folder / "ck" / "metadata").read_text())["id"])


def _output_problems(folder: Path, model: Expected) -> list[str]:
    numbered = {int(path.name) for path in (folder / "out" / "_spark_metadata").glob("[0-9]*")}
    if numbered != set(range(len(model.emitted))):
        return [f"the sink has the batches {sorted(numbered)}, not 0 to {len(model.emitted) - 1}"]
    found = []
    for batch, wanted in enumerate(model.emitted):
        found += _difference(f"output of batch {batch}", emitted(folder, batch), wanted)
    return found


def _state_problems(folder: Path, model: Expected) -> list[str]:
    query, last, found = _query(folder), len(model.emitted) - 1, []
    for operator, wanted in model.state.items():
        try:
            state = read_state(folder / "ck" / "headrace-state", query, operator, last)
        except HeadraceError as error:
            found.append(f"state of {operator} cannot be read: {error}")
            continue
        found += _difference(f"state of {operator}", Counter(plain_rows(state)), wanted)
        if state.late_rows != model.late_rows[operator]:
            found.append(f"{operator} counted {state.late_rows} late rows, not {model.late_rows[operator]}")
    return found


def plain_rows(state: StateAt) -> list[Values]:
    """State rows as the model has them: keys, bounds in microseconds, then what the operator holds."""
    spec = state.spec
    names = [key.name for key in spec.keys]
    if spec.window is not None:
        names += [WINDOW_START, WINDOW_END] if spec.window.session else [WINDOW_START]
    columns = [_numbers(state.table.column(name)) for name in [*names, *_held(spec)]]
    return list(map(_hashable, zip(*(column.to_pylist() for column in columns), strict=True)))


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _held(spec: OperatorSpec) -> list[str]:
    """The columns that the model speaks of, in its order."""
    if spec.join is not None:
        sides = (("l", spec.join.left, ("high", "note")), ("r", spec.join.right, ("low", "amount")))
        return [
            f"{side}{[field.label for field in fields].index(name)}"
            for side, fields, names in sides
            for name in names
        ]
    if spec.grouped:
        named = {field.label: field.name for field in spec.inputs}
        return [TIME, named["amount"], named["bid"], named["note"]]
    if spec.holistics:
        kinds = [one.kind for one in spec.holistics]
        return ["a0", f"h{kinds.index('percentile')}", f"h{kinds.index('list')}"]
    return [f"a{index}" for index in _places(spec)]


def _hashable(row: Iterable[Any]) -> Values:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def _places(spec: OperatorSpec) -> list[int]:
    """Which accumulators hold n, total, top and least: the builder may keep them in any order."""
    held: list[tuple[str, str]] = [(acc.kind, acc.type) for acc in spec.accumulators]
    counts = ("count", "int64") if ("count", "int64") in held else ("sum", "int64")
    return [held.index(acc) for acc in (counts, ("sum", "double"), ("max", "int64"), ("min", "string"))]


def _difference(what: str, got: Output, wanted: Output) -> list[str]:
    missing, extra = wanted - got, got - wanted
    if not missing and not extra:
        return []
    return [
        f"{what}: {missing.total()} rows missing, {extra.total()} too many; "
        f"missing {list(missing)[:_SHOWN]}, too many {list(extra)[:_SHOWN]}"
    ]


def _stray_problems(folder: Path) -> list[str]:
    """Files where none belong: beside those of the round."""
    return [f"stray file {path}" for path in folder.iterdir() if path.name not in _KNOWN]


def _log_problems(folder: Path, batches_: int) -> list[str]:
    """What is left in the machine's log; a host that died last may leave the last batch there."""
    files = (folder.parent / "local" / "log").glob(f"*/{_query(folder)}/*/p*/**/*")
    known = (".", f"v{batches_ - 1:012d}-")  # unfinished files are swept by the next host
    return [f"left in the log: {f}" for f in files if f.is_file() and not f.name.startswith(known)]


def lane_strays(folder: Path) -> list[str]:
    """What a lane left where nothing belongs: in its folder, its working directory, sockets in temp."""
    strays = [path for path in folder.iterdir() if path.name not in _KNOWN_IN_LANE]
    strays = [path for path in strays if not path.name.startswith(("seed-", "case-"))]
    strays += list((folder / "work").iterdir())
    strays += list((folder / "tmp").glob("hr-*"))
    return [f"stray file {path}" for path in strays]
