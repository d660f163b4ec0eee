"""Arrow to state words and back.

Values leave Arrow as the words that a state row keeps (see `store.layout`), so folding a value into a row
never converts it. Nothing here loops over rows in Python. Arrow's own buffers are viewed, not copied, where
they already are 64-bit words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import QueryError
from headrace.kernels.core.bytes import total, unpack
from headrace.plan.spec import HASH, OperatorSpec, output_schema
from headrace.plan.types import arrow_type, is_decimal, is_variable
from headrace.row.arrays import U8, U64, Flags
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX, AccumulatorSlot, KeySlot, RowLayout
from headrace.row.run import Run

_ALL_VALID: Flags = np.zeros(0, np.bool_)
_NO_HEAP: U8 = np.zeros(0, np.uint8)
_ALL_VALID.flags.writeable = _NO_HEAP.flags.writeable = False

_STRING_BYTES_MAX = (1 << 31) - 1  # what Arrow's 32-bit offsets reach
_PLAIN: dict[str, npt.DTypeLike] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "date": np.int32,
    "timestamp": np.int64,
    "timestamp_ntz": np.int64,
    "duration": np.int64,
    "float": np.uint32,  # as bits
    "double": np.uint64,
}


@dataclass(frozen=True)
class Column:
    """A batch column as state words `[n, 1 or 2]`, the heap of variable words, and which are not null.

    An empty `valid` means that none is null. The words of a null are whatever Arrow had there, but never
    point outside the heap.
    """

    words: U64
    heap: U8
    valid: Flags


def column_of(array: pa.Array, kind: str) -> Column:
    """The words of an Arrow array that carries state type `kind`."""
    array = _plain(array, kind)
    valid = valid_of(array)
    if is_variable(kind):
        words, heap = _pointers(array, valid)
        return Column(words.reshape(-1, 1), heap, valid)
    if kind == "bool":
        bools = _bits(array.buffers()[1], array.offset, len(array)).astype(np.uint64)
        return Column(bools.reshape(-1, 1), _NO_HEAP, valid)
    if is_decimal(kind):
        pairs = _view(array.buffers()[1], np.uint64, 2 * array.offset, 2 * len(array))
        return Column(pairs.reshape(-1, 2), _NO_HEAP, valid)
    values = _view(array.buffers()[1], _PLAIN[kind], array.offset, len(array))
    if values.dtype.itemsize < 8:  # sign-extends integers; the bits of a float are unsigned
        values = values.astype(np.uint64 if kind == "float" else np.int64)
    return Column(values.view(np.uint64).reshape(-1, 1), _NO_HEAP, valid)


def hashes_in(batch: pa.RecordBatch) -> U64:
    """The hashes of a batch of the operator's input schema."""
    return column_of(batch.column(HASH), "int64").words.reshape(-1)


def probe_of(layout: RowLayout, batch: pa.RecordBatch, keys: Sequence[KeySlot] | None = None) -> Run:
    """Hashes and key words of a batch of the operator's input schema; of some keys, the others are zero."""
    words = np.zeros((batch.num_rows, layout.key_width), np.uint64)
    heaps: list[U8] = []
    for slot in layout.keys if keys is None else keys:
        column = column_of(batch.column(slot.field.name), slot.field.type)
        part = column.words
        if len(column.heap):
            moved = np.uint64(sum(map(len, heaps)) << LENGTH_BITS)
            part = np.where(part == 0, part, part + moved)
            heaps.append(column.heap)
        end = slot.word + part.shape[1]
        if len(column.valid):
            words[:, slot.word : end] = np.where(column.valid[:, None], part, np.uint64(0))
            words[:, slot.null_bit // 64] |= (~column.valid).astype(np.uint64) << np.uint64(
                slot.null_bit % 64
            )
        else:
            words[:, slot.word : end] = part
    heap = heaps[0] if len(heaps) == 1 else np.concatenate([_NO_HEAP, *heaps])
    return Run(hashes_in(batch), words, heap)


def heap_bytes(rows: pa.RecordBatch) -> int:
    """At most how many bytes of strings these rows can add to a heap."""
    return int(sum(column.nbytes for column in rows.columns if is_variable(str(column.type))))


def results_of(
    layout: RowLayout, run: Run, start_us: int | None, chunk_rows: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a run as batches of the operator's output schema, at most `chunk_rows` rows each.

    `start_us` is the start of the window that the rows are results of, None without one.
    """
    for start in range(0, len(run), chunk_rows):
        yield from _batches(layout, run.words[start : start + chunk_rows], run.heap, start_us)


def _batches(layout: RowLayout, words: U64, heap: U8, start_us: int | None) -> Iterator[pa.RecordBatch]:
    """One batch, or several where a string column would outgrow Arrow's offsets."""
    sizes = [total(np.ascontiguousarray(words[:, word])) for word in layout.variable_words]
    if len(words) > 1 and max(sizes, default=0) > _STRING_BYTES_MAX:
        half = len(words) // 2
        yield from _batches(layout, words[:half], heap, start_us)
        yield from _batches(layout, words[half:], heap, start_us)
        return
    columns = [_key_array(slot, words, heap) for slot in layout.keys]
    columns += _window_arrays(layout.spec, len(words), start_us)
    for slot in layout.accumulators:
        columns += _accumulator_arrays(layout, slot, words, heap)
    yield pa.RecordBatch.from_arrays(columns, schema=output_schema(layout.spec))


def _key_array(slot: KeySlot, words: U64, heap: U8) -> pa.Array:
    return array_of(slot.field.type, words, slot.word, heap, ~_flag(words, 0, slot.null_bit))


def _window_arrays(spec: OperatorSpec, n: int, start_us: int | None) -> list[pa.Array]:
    if spec.window is None:
        return []
    if start_us is None:
        raise ValueError("a windowed operator's results belong to a window")
    bounds = (start_us, start_us + spec.window.width_us)
    return [pa.array(np.full(n, bound, np.int64)).view(arrow_type("timestamp")) for bound in bounds]


def _accumulator_arrays(layout: RowLayout, slot: AccumulatorSlot, words: U64, heap: U8) -> list[pa.Array]:
    kind, of = slot.accumulator.kind, slot.accumulator.type
    if kind == "moments":
        return [array_of("double", words, slot.word + part, heap, None) for part in range(3)]
    if kind == "count":
        return [array_of("int64", words, slot.word, heap, None)]
    valid = _flag(words, layout.key_width, slot.has_bit) & ~_flag(words, layout.key_width, slot.second_bit)
    return [array_of(of, words, slot.word + (kind in ("first", "last")), heap, valid)]


def array_of(kind: str, words: U64, word: int, heap: U8, valid: Flags | None) -> pa.Array:
    """Column `word` of state rows as an Arrow array; `valid` None means that none is null."""
    n, bitmap = len(words), None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if is_decimal(kind):
        pairs = np.ascontiguousarray(words[:, word : word + 2])
        return pa.Array.from_buffers(arrow_type(kind), n, [bitmap, pa.py_buffer(pairs)])
    values: npt.NDArray[Any] = np.ascontiguousarray(words[:, word])
    if is_variable(kind):
        offsets = np.zeros(n + 1, np.int32)
        np.cumsum(values & np.uint64(LENGTH_MAX), out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        unpack(values, heap, offsets, data)
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(arrow_type(kind), n, buffers)
    if kind == "bool":
        values = np.packbits(values != 0, bitorder="little")
    elif np.dtype(_PLAIN[kind]).itemsize < 8:
        values = values.astype(_PLAIN[kind])  # keeps the lower bits
    return pa.Array.from_buffers(arrow_type(kind), n, [bitmap, pa.py_buffer(values)])


def _flag(words: U64, first: int, bit: int) -> Flags:
    """Bit number `bit`, counted from word `first` on, of each row."""
    flags: Flags = (words[:, first + bit // 64] & np.uint64(1 << bit % 64)) != 0
    return flags


def _plain(array: pa.Array, kind: str) -> pa.Array:
    """The array as `kind` travels; a timestamp's zone does not change its 64 bits."""
    expected = arrow_type(kind)
    if array.type == expected:
        return array
    if pa.types.is_timestamp(expected) and pa.types.is_timestamp(array.type) and array.type.unit == "us":
        return array
    return array.cast(expected)


def _view(buffer: pa.Buffer | None, dtype: npt.DTypeLike, start: int, n: int) -> npt.NDArray[Any]:
    if buffer is None or n == 0:
        return np.zeros(n, dtype)
    size = np.dtype(dtype).itemsize
    values = np.frombuffer(buffer, dtype, n, start * size)
    return values if values.flags.aligned else values.copy()


def _bits(buffer: pa.Buffer, start: int, n: int) -> Flags:
    """`n` bits of an Arrow bitmap from bit `start` on."""
    first = start // 8
    packed = _view(buffer, np.uint8, first, (start + n + 7) // 8 - first)
    bits: Flags = np.unpackbits(packed, bitorder="little")[start - 8 * first :][:n].view(np.bool_)
    return bits


def valid_of(array: pa.Array) -> Flags:
    """Which values are not null; empty when none is null."""
    if array.null_count == 0:
        return _ALL_VALID
    if array.buffers()[0] is None:  # an array of nulls may come without a bitmap
        return np.zeros(len(array), np.bool_)
    return _bits(array.buffers()[0], array.offset, len(array))


def _pointers(array: pa.Array, valid: Flags) -> tuple[U64, U8]:
    """Words into the array's own data buffer, which is the heap."""
    _, offsets_buffer, data = array.buffers()
    if len(array) == 0 or offsets_buffer is None:
        return np.zeros(len(array), np.uint64), _NO_HEAP
    offsets = _view(offsets_buffer, np.int32, array.offset, len(array) + 1).astype(np.int64)
    lengths = np.diff(offsets)
    if len(valid):
        lengths[~valid] = 0
    if int(lengths.max()) > LENGTH_MAX:
        raise QueryError(
            f"a string or binary value of {int(lengths.max()):,} bytes cannot be kept in state",
            hint=f"shorten or hash values of more than {LENGTH_MAX:,} bytes before the stateful operator",
        )
    begin = int(offsets[0])
    words = ((offsets[:-1] - begin) << LENGTH_BITS) | lengths
    words[lengths == 0] = 0
    return words.view(np.uint64), _view(data, np.uint8, begin, int(offsets[-1]) - begin)
