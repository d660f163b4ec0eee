"""What runs over shared storage: the operators of a query in the order of the stream, and their rows.

*Totals* is a running aggregate. *Logistics* is the job of the ForSt paper (section 3.1): order updates are
deduplicated to the newest, and joined with shipping updates; both operators retain 60 days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import numpy as np
import pyarrow as pa

from headrace.bench.shared.rows import batch_of, hashes_in, spec_of, texts
from headrace.plan.columns import HASH, LEFT, RIGHT, SIDE, TIME
from headrace.plan.spec import Field, OperatorSpec, input_schema
from headrace.plan.work.dedup import Dedup
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.row.arrays import I64, U64

Workload = Literal["totals", "logistics"]
STORED_ROWS = {"totals": 1, "logistics": 3}  # of a key
DAY_US = 86_400_000_000
RETAINED_US = 60 * DAY_US
_BEGIN_US = 20_000 * DAY_US
_STEP_US = 60_000_000  # of event time between two batches
_BUCKET_US = RETAINED_US // 8


class Job(Protocol):
    """The operators of one query. All have the same keys, and as many partitions."""

    @property
    def specs(self) -> Sequence[OperatorSpec]: ...

    def distinct(self, keys: I64) -> I64:
        """The keys of a batch as the job takes them."""

    def rows(self, place: int, number: int, keys: I64, hashes: U64, before: pa.Table) -> pa.RecordBatch:
        """The rows of the operator at a place, for keys of a batch and the results of the one before it."""

    def seen_ms(self, number: int) -> list[int | None]:
        """The largest event time of a batch, by input of an operator."""

    def with_partitions(self, partitions: int) -> Self:
        """The same job in another number of partitions."""


@dataclass(frozen=True)
class Totals:
    """Count and sum per key, as many times as there are specs."""

    specs: tuple[OperatorSpec, ...]

    @classmethod
    def of(cls, partitions: int, operators: int = 1) -> Self:
        return cls(tuple(spec_of(f"totals{number}", partitions) for number in range(operators)))

    def distinct(self, keys: I64) -> I64:
        return keys

    def rows(self, place: int, number: int, keys: I64, hashes: U64, before: pa.Table) -> pa.RecordBatch:
        return batch_of(self.specs[place], keys, hashes)

    def seen_ms(self, number: int) -> list[int | None]:
        return []

    def with_partitions(self, partitions: int) -> Self:
        return type(self)(tuple(replace(spec, partitions=partitions) for spec in self.specs))


@dataclass(frozen=True)
class Logistics:
    """Order updates without repeats, and the shipping updates of the same order within 60 days of them.

    A batch has of each of its orders an update, an older repeat of it, and a shipping update.
    """

    specs: tuple[OperatorSpec, OperatorSpec]

    @classmethod
    def of(cls, partitions: int) -> Self:
        return cls((_dedup(partitions), _join(partitions)))

    def distinct(self, keys: I64) -> I64:
        unique: I64 = np.unique(keys)
        return unique

    def rows(self, place: int, number: int, keys: I64, hashes: U64, before: pa.Table) -> pa.RecordBatch:
        return (
            self._orders(number, keys, hashes) if place == 0 else self._both(number, keys, hashes, before)
        )

    def seen_ms(self, number: int) -> list[int | None]:
        return [(_BEGIN_US + number * _STEP_US) // 1000]

    def with_partitions(self, partitions: int) -> Self:
        return type(self).of(partitions)

    def _orders(self, number: int, keys: I64, hashes: U64) -> pa.RecordBatch:
        """Each order twice: as it is now, and as another platform has sent it before."""
        times = np.repeat(np.array([0, -1_000_000]) + _BEGIN_US + number * _STEP_US, len(keys))
        names = texts(keys, hashes)
        columns = {
            HASH: np.tile(hashes, 2).view(np.int64),
            TIME: times,
            "k0": pa.concat_arrays([names, names]),
            "v0": pa.concat_arrays([names, names]),  # stands for address and product
        }
        return _batch(self.specs[0], columns)

    def _both(self, number: int, keys: I64, hashes: U64, orders: pa.Table) -> pa.RecordBatch:
        left, right = orders.num_rows, len(keys)
        orders = orders.combine_chunks()
        names, addresses = (_joined(orders.column(name)) for name in ("k0", "v0"))
        status = pa.array([f"passed transit node {number % 97}"] * right, pa.string())
        columns = {
            HASH: np.concatenate([hashes_in(names), hashes]).view(np.int64),
            TIME: np.full(left + right, _BEGIN_US + number * _STEP_US),
            SIDE: np.repeat(np.array([LEFT, RIGHT], np.int8), [left, right]),
            "k0": pa.concat_arrays([names, texts(keys, hashes)]),
            "v0": pa.concat_arrays([addresses, status]),
        }
        return _batch(self.specs[1], columns)


def job_of(workload: Workload, partitions: int) -> Job:
    return Totals.of(partitions) if workload == "totals" else Logistics.of(partitions)


def _dedup(partitions: int) -> OperatorSpec:
    return OperatorSpec(
        name="orders",
        keys=(Field("k0", "string", "order"),),
        inputs=(Field("v0", "string", "address"),),
        work=Dedup("last", RETAINED_US),
        window=None,
        emit="changes",
        timed=True,
        delays_ms=(0,),
        partitions=partitions,
    )


def _join(partitions: int) -> OperatorSpec:
    order = (Field("v0", "string", "address"), Field(TIME, "timestamp", "updated"))
    shipping = (Field("v0", "string", "status"), Field(TIME, "timestamp", "passed"))
    return OperatorSpec(
        name="shipped",
        keys=(Field("k0", "string", "order"),),
        inputs=(Field("v0", "string", "text"),),
        work=StreamJoin("inner", order, shipping, -RETAINED_US, RETAINED_US, _BUCKET_US),
        window=None,
        emit="changes",
        timed=True,
        delays_ms=(0,),
        partitions=partitions,
        store="aar",
    )


def _batch(spec: OperatorSpec, columns: dict[str, object]) -> pa.RecordBatch:
    schema = input_schema(spec)
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
