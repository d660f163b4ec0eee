"""Joins without a window, by their definition: all rows that were in time, compared one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.plan.spec import ALONE, LEFT, RIGHT, TIME, Field, OperatorSpec, input_schema
from headrace.plan.work.joins.condition import Term
from headrace.plan.work.joins.stream_join import Matching, Meets, StreamJoin
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import rows_of

Row = tuple[int | None, int, int, str | None]  # key, side, time, text
Out = Counter[tuple[Any, ...]]

HOWS: tuple[Matching, ...] = ("inner", "left", "right", "full", "semi", "anti")
BOUNDS = [(-5, 5), (0, 10), (-10, 0), (3, 8), (-9, -2), (0, 0), (None, None)]

rows = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1, 2, 3]),
        st.sampled_from([LEFT, RIGHT]),
        st.integers(0, 50),
        st.none() | st.text("xyz", max_size=12),
    ),
    max_size=30,
)
epochs = st.lists(
    st.tuples(rows, st.integers(0, 15), st.sampled_from(["commit", "crash", "reopen"])), max_size=6
)


LESS: Term = ("less", ("left", "v0", "string"), ("right", "v0", "string"))


def spec_of(
    how: Matching,
    lower: int | None,
    upper: int | None,
    meets: Meets = "both",
    where: Term | None = None,
) -> OperatorSpec:
    fields = (Field("v0", "string", "text"), Field(TIME, "timestamp", "at"))
    return OperatorSpec(
        name="join-1",
        keys=(Field("k0", "int32", "k"),),
        inputs=(Field("v0", "string", "text"),),
        work=StreamJoin(how, fields, fields, lower, upper, 0 if lower is None else 4, meets, where=where),
        window=None,
        emit="changes",
        timed=True,
        delays_ms=(0, 0),
        partitions=1,
        store="aar",
    )


def batch_of(spec: OperatorSpec, listed: list[Row]) -> pa.RecordBatch:
    keys, sides, times, texts = zip(*listed, strict=True) if listed else ((),) * 4
    marked = [side + ALONE * (key is None) for key, side in zip(keys, sides, strict=True)]
    hashes = [((-1 if key is None else key) % 3) << 60 for key in keys]  # keys 0 and 3 share one
    schema = input_schema(spec)
    columns = zip([hashes, times, marked, keys, texts], schema, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=schema)


@dataclass
class Model:
    """All rows that were in time; a row is numbered by its arrival."""

    work: StreamJoin
    watermark: int | None = None
    accepted: list[Row] = field(default_factory=list)
    matched: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)

    def epoch(self, listed: list[Row], watermark: int) -> Out:
        old = len(self.accepted)
        self.accepted += [row for row in listed if self.watermark is None or row[2] > self.watermark]
        out: Out = Counter()
        before = set(self.matched)
        for i, left in self._of(LEFT):
            for j, right in self._of(RIGHT):
                if self._match(left, right) and max(i, j) >= old:
                    self.matched |= {i, j}
                    if self.work.returns_right:
                        out[left[0], left[3], left[2], right[3], right[2]] += 1
        if self.work.how == "semi":
            out.update((row[0], row[3], row[2]) for i, row in self._of(LEFT) if i in self.matched - before)
        self.watermark = watermark
        self._expire(out)
        return out

    def _of(self, side: int) -> list[tuple[int, Row]]:
        return [(at, row) for at, row in enumerate(self.accepted) if row[1] == side]

    def _match(self, left: Row, right: Row) -> bool:
        if left[0] is None or left[0] != right[0]:
            return False
        if self.work.where is not None and (left[3] is None or right[3] is None or left[3] >= right[3]):
            return False
        lower, upper = self.work.lower_us, self.work.upper_us
        return lower is None or upper is None or lower <= left[2] - right[2] <= upper

    def _expire(self, out: Out) -> None:
        """No row later than the watermark can match these rows."""
        lower, upper = self.work.lower_us, self.work.upper_us
        if lower is None or upper is None or self.watermark is None:
            return
        how, until = self.work.how, {LEFT: -lower, RIGHT: upper}
        for at, (key, side, time, text) in enumerate(self.accepted):
            if at in self.expired or time + until[side] > self.watermark:
                continue
            self.expired.add(at)
            if at in self.matched:
                continue
            if side == LEFT and how in ("left", "full"):
                out[key, text, time, None, None] += 1
            if side == LEFT and how == "anti":
                out[key, text, time] += 1
            if side == RIGHT and how in ("right", "full"):
                out[key, None, None, text, time] += 1


@dataclass
class LookingBack(Model):
    """Left rows meet what arrived up to their moment: their epoch, or when the watermark passes them."""

    def epoch(self, listed: list[Row], watermark: int) -> Out:
        old, before = len(self.accepted), self.watermark
        self.accepted += [row for row in listed if before is None or row[2] > before]
        self.watermark = watermark
        out: Out = Counter()
        for at, left in self._of(LEFT):
            if at < old if self.work.meets == "arrival" else at in self.expired or left[2] > watermark:
                continue
            self.expired.add(at)
            pairs = [right for _, right in self._of(RIGHT) if self._match(left, right)]
            if self.work.returns_right:
                out.update((left[0], left[3], left[2], right[3], right[2]) for right in pairs)
            if not pairs and self.work.how == "left":
                out[left[0], left[3], left[2], None, None] += 1
            if self.work.how == ("semi" if pairs else "anti"):
                out[left[0], left[3], left[2]] += 1
        return out


def run(
    lab: StoreLab,
    listed: list[Row],
    watermark: int,
    *,
    commit: bool,
    batch: Callable[[OperatorSpec, list[Row]], pa.RecordBatch] = batch_of,
) -> Out:
    lab.begin()
    for start in range(0, len(listed) or 1, 7):  # an epoch comes in several blocks
        lab.store.apply(batch(lab.spec, listed[start : start + 7]))
    write = lab.store.gather(watermark)
    emitted = rows_of(lab.store.results(watermark))
    written = write()
    if commit:
        lab.settle(written, watermark)
    return Counter(emitted)
