"""Protects replay: any split of a range gives the same rows, a view is a filter of the whole stream,
out-of-order groups are permutations, and lateness changes times only.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import QueryError
from headrace.generators.nexmark import VIEWS, NexmarkConfig, NexmarkGenerator, schema

BUSY = NexmarkGenerator(NexmarkConfig(seed=3, out_of_order_group=30, late_probability=0.2))


def micros(column: pa.Array) -> np.ndarray:
    return column.cast(pa.int64()).to_numpy()


@settings(max_examples=40, deadline=None)
@given(
    view=st.sampled_from(VIEWS),
    start=st.integers(0, 200_000),
    cuts=st.lists(st.integers(0, 400), max_size=5),
)
def test_any_split_gives_the_same_rows(view: str, start: int, cuts: list[int]) -> None:
    bounds = [start, *sorted(start + cut for cut in cuts), start + 400]
    pieces = [BUSY.batch(view, low, high) for low, high in pairwise(bounds)]
    whole = pa.Table.from_batches([BUSY.batch(view, start, start + 400)])
    assert pa.Table.from_batches(pieces).combine_chunks().equals(whole)


@pytest.mark.parametrize("view", ["person", "auction", "bid"])
def test_a_view_is_a_filter_of_the_whole_stream(view: str) -> None:
    whole = BUSY.batch("all", 100, 3100)
    struct = whole.column(view)
    wanted = pa.Table.from_batches([pa.RecordBatch.from_struct_array(struct.drop_null())])
    assert BUSY.batch(view, 100, 3100).to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("view", VIEWS)
def test_batches_are_the_batch_in_pieces(view: str) -> None:
    generator = NexmarkGenerator(NexmarkConfig(extra=False))
    pieces = list(generator.batches(view, 10, 70_000))
    assert all(piece.schema.equals(schema(view)) for piece in pieces)
    assert all(0 < piece.num_rows <= 65_536 for piece in pieces)
    table = pa.Table.from_batches(pieces).combine_chunks()
    assert table.equals(pa.Table.from_batches([generator.batch(view, 10, 70_000)]))
    assert all(piece.validate(full=True) is None for piece in pieces)


@pytest.mark.parametrize("view", VIEWS)
def test_an_empty_range_has_no_rows(view: str) -> None:
    assert NexmarkGenerator().batch(view, 5, 5).num_rows == 0
    assert list(NexmarkGenerator().batches(view, 5, 5)) == []


def test_kinds_come_one_to_three_to_forty_six() -> None:
    kinds = NexmarkGenerator().batch("all", 0, 50_000).column("event_type").to_numpy()
    assert np.bincount(kinds).tolist() == [1000, 3000, 46_000]


def test_times_are_monotone_in_order() -> None:
    times = micros(NexmarkGenerator(NexmarkConfig(rate=7)).batch("all", 0, 5000).column("dateTime"))
    assert (np.diff(times) >= 0).all()
    assert times[-1] - times[0] == 4999 * 1000 // 7 * 1000


def test_a_group_is_a_permutation_of_its_events() -> None:
    config = NexmarkConfig(out_of_order_group=250, rate=1000)
    plain = NexmarkGenerator(NexmarkConfig(rate=1000)).batch("all", 0, 1000).to_pylist()
    mixed = NexmarkGenerator(config).batch("all", 0, 1000).to_pylist()
    for start in range(0, 1000, 250):
        group = mixed[start : start + 250]
        assert group != plain[start : start + 250]
        assert sorted(group, key=repr) == sorted(plain[start : start + 250], key=repr)


def test_a_group_that_would_repeat_events_is_refused() -> None:
    with pytest.raises(QueryError, match="outOfOrderGroup"):
        NexmarkConfig(out_of_order_group=1906)


def test_lateness_moves_some_times_back_and_nothing_else() -> None:
    late = NexmarkGenerator(NexmarkConfig(late_probability=0.1, late_max_ms=50)).batch("bid", 0, 50_000)
    on_time = NexmarkGenerator(NexmarkConfig()).batch("bid", 0, 50_000)
    behind = (micros(on_time.column("dateTime")) - micros(late.column("dateTime"))) // 1000
    assert behind.min() == 0
    assert sorted(set(behind[behind > 0].tolist())) == list(range(1, 51))
    assert 0.095 < (behind > 0).mean() < 0.105
    assert late.drop_columns(["dateTime"]).equals(on_time.drop_columns(["dateTime"]))


def test_a_late_auction_keeps_its_length() -> None:
    late = NexmarkGenerator(NexmarkConfig(late_probability=1.0)).batch("auction", 0, 5000)
    on_time = NexmarkGenerator(NexmarkConfig()).batch("auction", 0, 5000)
    lengths = [micros(rows.column("expires")) - micros(rows.column("dateTime")) for rows in (late, on_time)]
    assert (lengths[0] == lengths[1]).all()
