"""What a simulated query computes: its operator, its input, and the answers by a plain dict."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec, input_schema

QUERY = "query"
KEYS = 13
SPEC = OperatorSpec(
    name="sums",
    keys=(Field("k0", "string", "key"),),
    inputs=(Field("v0", "int64", "amount"),),
    work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)

State = dict[str, tuple[int, int]]
Rows = list[tuple[str, int]]


@dataclass(frozen=True)
class Model:
    """The rows of every batch, and the state after it."""

    partitions: int
    inputs: list[Rows]
    states: list[State]  # after each batch

    @classmethod
    def drawn(cls, draw: random.Random) -> Model:
        partitions, batches = draw.randint(1, 2), draw.randint(3, 7)
        inputs = [_rows(draw) for _ in range(batches)]
        states: list[State] = []
        for rows in inputs:
            states.append(_after(dict(states[-1]) if states else {}, rows))
        return cls(partitions, inputs, states)

    @property
    def batches(self) -> int:
        return len(self.inputs)

    @property
    def spec(self) -> OperatorSpec:
        return replace(SPEC, partitions=self.partitions)

    def rows(self, batch: int, partition: int) -> Rows:
        return [row for row in self.inputs[batch] if self.partition_of(row[0]) == partition]

    def expected(self, batch: int, partition: int) -> State:
        """The changes that a batch emits for one partition."""
        return {key: self.states[batch][key] for key, _ in self.rows(batch, partition)}

    def probe(self, partition: int) -> tuple[Rows, State]:
        """A row of zero for every key after the last batch, and what it gives."""
        keys = [f"key-{number}" for number in range(KEYS)]
        mine = [key for key in keys if self.partition_of(key) == partition]
        final = self.states[-1]
        counts = {key: (final.get(key, (0, 0))[0] + 1, final.get(key, (0, 0))[1]) for key in mine}
        return [(key, 0) for key in mine], counts

    def partition_of(self, key: str) -> int:
        return int(key.removeprefix("key-")) % self.partitions


def _rows(draw: random.Random) -> Rows:
    return [(f"key-{draw.randrange(KEYS)}", draw.randint(-5, 5)) for _ in range(draw.randint(0, 12))]


def _after(state: State, rows: Rows) -> State:
    for key, amount in rows:
        count, total = state.get(key, (0, 0))
        state[key] = (count + 1, total + amount)
    return state


def batch_of(rows: Rows) -> pa.RecordBatch:
    hashes = np.array([sum(key.encode()) % 5 << 40 for key, _ in rows], np.int64)
    keys, amounts = pa.array([key for key, _ in rows]), pa.array([amount for _, amount in rows], pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(hashes), keys, amounts], schema=input_schema(SPEC))


def state_of(batches: Iterable[pa.RecordBatch]) -> State:
    rows = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    return {key: (count, total) for key, count, total in rows}
