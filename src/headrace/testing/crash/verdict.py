"""Compares the files of a crash round with the model: output batch by batch, then state.

A commit behind the last batch may have been killed. It is finished from the machine's log first, as a start
of the query would do. Then nothing may be missing.
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

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.errors import HeadraceError
from headrace.plan.spec import TIME, WINDOW_END, WINDOW_START, Grouped, Holistic, OperatorSpec, WindowJoin
from headrace.recovery.recover import Recovery
from headrace.spark.processors.convert import unpack
from headrace.testing.crash.batches import NotAllRead, batches_as_read, ends_of
from headrace.testing.crash.input import batches
from headrace.testing.crash.model import Expected, Output, Values, expected
from headrace.testing.crash.plan import Plan
from headrace.testing.crash.work.ledger import header_row
from headrace.testing.state_reader import StateAt, read_state

_SHOWN = 3
_KNOWN = ("in", "out", "ck", "round.json", "done")
_KNOWN_IN_LANE = ("local", "spark", "tmp", "work", "warehouse", "driver.log", "round", "over")


def problems(folder: Path, plan: Plan) -> list[str]:
    """All differences from the uninterrupted run; empty when they are equal."""
    try:
        read = batches_as_read(batches(plan.seed)[: plan.files], ends_of(folder / "ck"))
    except NotAllRead as error:
        return [str(error)]
    model = expected(plan.kind, read)
    differences = output_problems(folder, model)
    differences += _recovery_problems(folder) or _state_problems(folder, model)
    return differences + _stray_problems(folder) + log_problems(folder, len(read))


def _recovery_problems(folder: Path) -> list[str]:
    """Finishes the commits in the log; any other repair would mean a loss."""
    try:
        recovery = Recovery(LocalFiles((folder / "ck").as_uri()), folder.parent / "local")
        decision = recovery.repair().decision
    except HeadraceError as error:
        return [f"the checkpoint cannot be recovered: {error}"]
    return [] if decision.action == "nothing" else [f"a batch had to be taken back: {decision.reason}"]


def emitted(folder: Path, batch: int) -> Output:
    """The rows that Spark's file sink has committed for a batch; an uncommitted file does not count."""
    lines = (folder / "out" / "_spark_metadata" / str(batch)).read_text().splitlines()[1:]
    rows: Output = Counter()
    for line in lines:
        path = Path(unquote(urlsplit(json.loads(line)["path"]).path))
        rows.update(map(_hashable, (row.values() for row in pq.read_table(path).to_pylist())))
    return rows


def _query(folder: Path) -> str:
    return str(json.loads((folder / "ck" / "metadata").read_text())["id"])


def output_problems(folder: Path, model: Expected) -> list[str]:
    numbered = {int(path.name) for path in (folder / "out" / "_spark_metadata").glob("[0-9]*")}
    if numbered != set(range(len(model.emitted))):
        return [f"the sink has the batches {sorted(numbered)}, not 0 to {len(model.emitted) - 1}"]
    differences = []
    for batch, expected_rows in enumerate(model.emitted):
        differences += _difference(f"output of batch {batch}", emitted(folder, batch), expected_rows)
    return differences


def _state_problems(folder: Path, model: Expected) -> list[str]:
    query, last, differences = _query(folder), len(model.emitted) - 1, []
    for operator, expected_rows in model.state.items():
        try:
            state = read_state(folder / "ck" / "headrace-state", query, operator, last)
        except HeadraceError as error:
            differences.append(f"state of {operator} cannot be read: {error}")
            continue
        differences += _difference(f"state of {operator}", Counter(plain_rows(state)), expected_rows)
        if state.late_rows != model.late_rows[operator]:
            differences.append(
                f"{operator} counted {state.late_rows} late rows, not {model.late_rows[operator]}"
            )
    return differences


def plain_rows(state: StateAt) -> list[Values]:
    """State rows in the model's form: keys, bounds in microseconds, then the operator's values."""
    spec = state.spec
    if spec.work.is_interactive:
        return _ledger_rows(state)
    names = [key.name for key in spec.keys]
    if spec.window is not None:
        names += [WINDOW_START, WINDOW_END] if spec.window.session else [WINDOW_START]
    columns = [_numbers(state.table.column(name)) for name in [*names, *_value_columns(spec)]]
    return list(map(_hashable, zip(*(column.to_pylist() for column in columns), strict=True)))


def _ledger_rows(state: StateAt) -> list[Values]:
    """The headers of a processor's keys; these keys are too small for further cells."""
    *keys, cells, values = (column.to_pylist() for column in state.table.columns)
    assert not any(cells)
    return [
        header_row(key, unpack(value)) for key, value in zip(zip(*keys, strict=True), values, strict=True)
    ]


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _value_columns(spec: OperatorSpec) -> list[str]:
    """The columns that the model has, in its order."""
    match spec.work:
        case WindowJoin(_, left, right):
            sides = (("l", left, ("high", "note")), ("r", right, ("low", "amount")))
            return [
                f"{side}{[field.label for field in fields].index(name)}"
                for side, fields, names in sides
                for name in names
            ]
        case Grouped():
            named = {field.label: field.name for field in spec.inputs}
            return [TIME, named["amount"], named["bid"], named["note"]]
        case Holistic(results):
            kinds = [one.kind for one in results]
            return ["a0", f"h{kinds.index('percentile')}", f"h{kinds.index('list')}"]
    return [f"a{index}" for index in _places(spec)]


def _hashable(row: Iterable[Any]) -> Values:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def _places(spec: OperatorSpec) -> list[int]:
    """The accumulators of n, total, top and least: the builder may order them in any way."""
    kinds: list[tuple[str, str]] = [(acc.kind, acc.type) for acc in spec.work.accumulators]
    counts = ("count", "int64") if ("count", "int64") in kinds else ("sum", "int64")
    return [kinds.index(acc) for acc in (counts, ("sum", "double"), ("max", "int64"), ("min", "string"))]


def _difference(what: str, actual: Output, expected_rows: Output) -> list[str]:
    missing, extra = expected_rows - actual, actual - expected_rows
    if not missing and not extra:
        return []
    return [
        f"{what}: {missing.total()} rows missing, {extra.total()} too many; "
        f"missing {list(missing)[:_SHOWN]}, too many {list(extra)[:_SHOWN]}"
    ]


def _stray_problems(folder: Path) -> list[str]:
    """Files that do not belong to the round."""
    return [f"stray file {path}" for path in folder.iterdir() if path.name not in _KNOWN]


def log_problems(folder: Path, batches_: int) -> list[str]:
    """Files in the machine's log; a host that was killed last may leave the last batch."""
    files = (folder.parent / "local" / "log").glob(f"*/{_query(folder)}/*/p*/**/*")
    expected_names = (".", f"v{batches_ - 1:012d}-")  # the next host removes unfinished files
    return [f"left in the log: {f}" for f in files if f.is_file() and not f.name.startswith(expected_names)]


def lane_strays(folder: Path) -> list[str]:
    """Files that a lane left in its folder, its working directory and, as sockets, in temp."""
    strays = [path for path in folder.glob("*") if path.name not in _KNOWN_IN_LANE]
    strays = [path for path in strays if not path.name.startswith(("seed-", "case-"))]
    strays += list((folder / "work").glob("*"))  # a lane without a round has no such folder
    strays += list((folder / "tmp").glob("hr-*"))
    return [f"stray file {path}" for path in strays]
