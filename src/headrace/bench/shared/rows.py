"""Rows of the running aggregate: a key of 100 characters, an amount; and which keys a batch has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec, input_schema
from headrace.row.arrays import I64, U64

KEY_BYTES = 100
_MIX = np.uint64(0x9E3779B97F4A7C15)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def spec_of(name: str, partitions: int) -> OperatorSpec:
    """Count and sum per key."""
    return OperatorSpec(
        name=name,
        keys=(Field("k0", "string", "key"),),
        inputs=(Field("v0", "int64", "amount"),),
        work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
        window=None,
        emit="changes",
        timed=False,
        delays_ms=(),
        partitions=partitions,
    )


def hashes_of(keys: I64) -> U64:
    """Uniform and distinct for distinct keys."""
    mixed = keys.astype(np.uint64) * _MIX
    mixed ^= mixed >> np.uint64(32)
    return mixed * _MIX


def partitions_of(hashes: U64, partitions: int) -> I64:
    """By the top bits, as Spark's side does."""
    return ((hashes >> np.uint64(54)).astype(np.int64) * partitions) >> 10


def batch_of(spec: OperatorSpec, keys: I64, hashes: U64) -> pa.RecordBatch:
    """The rows of these keys, each with the amount 1."""
    names = {"__hash": pa.array(hashes.view(np.int64)), "k0": texts(keys, hashes)}
    names["v0"] = pa.array(np.ones(len(keys), np.int64))
    schema = input_schema(spec)
    return pa.record_batch([names[field.name] for field in schema], schema=schema)


def texts(keys: I64, hashes: U64) -> pa.Array:
    """Keys of `KEY_BYTES` characters that begin with digits of the hash and end with those of the key."""
    rows: npt.NDArray[np.uint8] = np.full((len(keys), KEY_BYTES), ord("k"), np.uint8)
    for column, number in ((0, hashes), (KEY_BYTES - 16, keys.astype(np.uint64))):
        for digit in range(16):
            nibble = (number >> np.uint64(60 - 4 * digit)) & np.uint64(15)
            rows[:, column + digit] = _DIGITS[nibble.astype(np.int64)]
    offsets = np.arange(0, rows.size + 1, KEY_BYTES, dtype=np.int32)
    return pa.StringArray.from_buffers(len(keys), pa.py_buffer(offsets), pa.py_buffer(rows.ravel()))


def hashes_in(names: pa.Array) -> U64:
    """The hashes with which `texts` begin."""
    rows = np.frombuffer(names.buffers()[2], np.uint8)[: len(names) * KEY_BYTES].reshape(-1, KEY_BYTES)
    places = np.searchsorted(_DIGITS, rows[:, :16]).astype(np.uint64)
    hashes: U64 = (places << (np.uint64(60) - np.uint64(4) * np.arange(16, dtype=np.uint64))).sum(
        axis=1, dtype=np.uint64
    )
    return hashes


def uniform(rng: np.random.Generator, keys: int, n: int) -> I64:
    """Keys drawn uniformly."""
    return rng.integers(0, keys, n)


def skewed(rng: np.random.Generator, keys: int, n: int) -> I64:
    """Keys of which few are frequent: a key's frequency falls with the power 1.2 of its rank."""
    return (rng.zipf(1.2, 2 * n).astype(np.int64) % keys)[:n]


def hot_spot(rng: np.random.Generator, keys: int, n: int) -> I64:
    """98 % of the rows have half a percent of the keys."""
    hot: I64 = rng.integers(0, max(1, keys // 200), n)
    return np.where(rng.random(n) < 0.98, hot, rng.integers(0, keys, n))
