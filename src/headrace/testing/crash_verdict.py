"""Compares what a crash round left on disk with the model: output batch by batch, then state."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import HeadraceError
from headrace.spec import WINDOW_START, OperatorSpec
from headrace.testing.crash_input import FILES, batches
from headrace.testing.crash_model import Expected, Key, Output, Totals, expected
from headrace.testing.crash_plan import Plan
from headrace.testing.state_reader import StateAt, read_state

_SHOWN = 3
_KNOWN = ("in", "out", "ck", "round.json", "done")
_KNOWN_IN_LANE = ("local", "spark", "tmp", "work", "warehouse", "driver.log", "round", "over")


def problems(folder: Path, plan: Plan) -> list[str]:
    """Everything that differs from the uninterrupted run; empty when nothing does."""
    model = expected(plan.kind, batches(plan.seed))
    return [*_output_problems(folder, model), *_state_problems(folder, model), *_stray_problems(folder)]


def emitted(folder: Path, batch: int) -> Output:
    """The rows that Spark's file sink has committed for a batch; an uncommitted file does not count."""
    lines = (folder / "out" / "_spark_metadata" / str(batch)).read_text().splitlines()[1:]
    found: Output = Counter()
    for line in lines:
        path = Path(unquote(urlsplit(json.loads(line)["path"]).path))
        found.update(tuple(row.values()) for row in pq.read_table(path).to_pylist())
    return found


def _output_problems(folder: Path, model: Expected) -> list[str]:
    numbered = {int(path.name) for path in (folder / "out" / "_spark_metadata").glob("[0-9]*")}
    if numbered != set(range(FILES)):
        return [f"the sink has the batches {sorted(numbered)}, not 0 to {FILES - 1}"]
    found = []
    for batch, wanted in enumerate(model.emitted):
        found += _difference(f"output of batch {batch}", emitted(folder, batch), wanted)
    return found


def _state_problems(folder: Path, model: Expected) -> list[str]:
    query = json.loads((folder / "ck" / "metadata").read_text())["id"]
    found = []
    for operator, groups in model.state.items():
        try:
            state = read_state(folder / "ck" / "headrace-state", query, operator, FILES - 1)
        except HeadraceError as error:
            found.append(f"state of {operator} cannot be read: {error}")
            continue
        found += _difference(
            f"state of {operator}", Counter(plain_rows(state)), Counter(wanted_rows(groups))
        )
        if state.late_rows != model.late_rows[operator]:
            found.append(f"{operator} counted {state.late_rows} late rows, not {model.late_rows[operator]}")
    return found


def plain_rows(state: StateAt) -> list[tuple[Any, ...]]:
    """State rows as the model has them: keys, window start in microseconds, n, total, top, least."""
    columns = [state.table.column(key.name) for key in state.spec.keys]
    if state.spec.window is not None:
        columns.append(state.table.column(WINDOW_START).cast(pa.int64()))
    columns += [state.table.column(f"a{index}") for index in _places(state.spec)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _places(spec: OperatorSpec) -> list[int]:
    """Which accumulators hold n, total, top and least: the builder may keep them in any order."""
    held: list[tuple[str, str]] = [(acc.kind, acc.type) for acc in spec.accumulators]
    counts = ("count", "int64") if ("count", "int64") in held else ("sum", "int64")
    return [held.index(acc) for acc in (counts, ("sum", "double"), ("max", "int64"), ("min", "string"))]


def wanted_rows(groups: dict[Key, Totals]) -> list[tuple[Any, ...]]:
    return [(*key, *totals.values) for key, totals in groups.items()]


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


def lane_strays(folder: Path) -> list[str]:
    """What a lane left where nothing belongs: in its folder, its working directory, sockets in temp."""
    strays = [path for path in folder.iterdir() if path.name not in _KNOWN_IN_LANE]
    strays = [path for path in strays if not path.name.startswith("seed-")]
    strays += list((folder / "work").iterdir())
    strays += list((folder / "tmp").glob("hr-*"))
    return [f"stray file {path}" for path in strays]
