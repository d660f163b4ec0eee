"""Protects what tests read of a version: the open windows of every store, as the rows say them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.blob.locations import Locations
from headrace.errors import StateMissing
from headrace.host.state.service import PartitionService
from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    Holistic,
    HolisticResult,
    OperatorSpec,
    StoreName,
    Window,
)
from headrace.testing.contracts.store_model import Row, StoreModel, batch_of, rows_of
from headrace.testing.state_reader import read_state
from headrace.wire.contract import Ticket

MS = 1000
TUMBLING, SLIDING, SESSION = (
    Window(20 * MS),
    Window(30 * MS, slide_us=10 * MS),
    Window(4 * MS, session=True),
)
FOLD = OperatorSpec(
    name="op",
    keys=(Field("k0", "string"),),
    inputs=(Field("v0", "int64"),),
    work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
    window=TUMBLING,
    emit="final",
    timed=True,
    delays_ms=(0,),
    partitions=1,
)
KEEP = replace(FOLD, work=Holistic((HolisticResult("list", "v0", "int64"),)))

CASES: list[tuple[OperatorSpec, Window, StoreName]] = [
    (FOLD, TUMBLING, "rmw"),
    (FOLD, TUMBLING, "memory"),
    (FOLD, TUMBLING, "rocksdb"),
    (FOLD, SLIDING, "rmw"),
    (FOLD, SESSION, "rmw"),
    (KEEP, TUMBLING, "aar"),
    (KEEP, SLIDING, "range"),
    (KEEP, SESSION, "aur"),
    (KEEP, SESSION, "rocksdb"),
]


def batches_of(seed: int) -> list[list[Row]]:
    draw = random.Random(seed)
    return [
        [
            Row(draw.randrange(5), (20 * number + draw.randrange(25)) * MS, draw.randrange(9))
            for _ in range(40)
        ]
        for number in range(4)
    ]


@pytest.mark.parametrize(("spec", "window", "store"), CASES)
def test_the_open_windows_are_read(
    tmp_path: Path, spec: OperatorSpec, window: Window, store: StoreName
) -> None:
    spec = replace(spec, window=window, store=store)
    model, seen_ms = StoreModel(spec), 0
    service = PartitionService(64 << 20, Locations(tmp_path / "local"))
    for number, rows in enumerate(batches_of(3)):
        base = None if number == 0 else number - 1
        ticket = Ticket("start", "q", spec, 0, number, base, 1, str(tmp_path / "shared"), 3)
        transaction = service.begin(ticket)
        transaction.apply(batch_of(spec, rows))
        seen_ms = max(seen_ms, *(row.time_us // MS for row in rows))
        list(transaction.finish([seen_ms]))
        transaction.commit()
        model.epoch(rows, seen_ms * MS)
    service.close()
    state = read_state(tmp_path / "shared", "q", "op", 3)
    answers = [model.answer(group) for group in model.groups.values()]
    assert answers
    assert Counter(map(repr, rows_of(state.table.to_batches()))) == Counter(map(repr, answers))
    assert state.late_rows == model.late_rows


def test_a_version_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    with pytest.raises(StateMissing, match="no operator op"):
        read_state(tmp_path / "shared", "q", "op", 3)
