"""Protects the Linear Road and cluster-monitoring generators: the same records for the same numbers however
they are cut, and traffic at its rate. Lines have 65 bytes and the content of their rows, and values that
look like roads and clusters.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.errors import QueryError
from headrace.generators.cluster import (
    CATEGORY_PERCENT,
    EVENTS,
    EVENTS_PER_JOB,
    FIRST_JOB,
    JOBS_ALIVE,
    TYPE_PERCENT,
)
from headrace.generators.linear_road import (
    CONGESTED_SHARE,
    LANES,
    REPORT_EVERY_S,
    REPORTS,
    ROAD_FEET,
    SEGMENT_FEET,
    TRIP,
)
from headrace.generators.records.lines import RECORD_BYTES
from headrace.generators.records.options import BASE_TIME_S, SourceOptions
from headrace.generators.records.records import Kind
from headrace.generators.records.traffic import Traffic

KINDS = [REPORTS, EVENTS]


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse("source", given)


def columns(kind: Kind, count: int, **given: str) -> dict[str, np.ndarray]:
    batch = kind.batch(options(**given), 0, count)
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
    return {name: column.to_numpy() for name, column in zip(batch.schema.names, plain, strict=True)}


# ── replay ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("view", ["rows", "text"])
def test_any_cut_makes_the_same_records(kind: Kind, view: str) -> None:
    settings = options(view=view, seed="7")
    whole = kind.batch(settings, 0, 10_000)
    cuts = [0, 1, 4499, 4500, 4501, 9999, 10_000]
    parts = [kind.batch(settings, low, high) for low, high in pairwise(cuts)]
    assert (
        pa.Table.from_batches(parts)
        .combine_chunks()
        .equals(pa.Table.from_batches([whole]).combine_chunks())
    )
    assert whole.schema == kind.schema_of(view)
    assert not whole.equals(kind.batch(replace(settings, traffic=Traffic(1500, 0.05, 8)), 0, 10_000))


def test_pieces_are_small_and_complete() -> None:
    pieces = list(EVENTS.batches(options(), 5, 150_000))
    assert [piece.num_rows for piece in pieces] == [65536, 65536, 18923]
    assert pieces[1].equals(EVENTS.batch(options(), 5 + 65536, 5 + 2 * 65536))


# ── traffic ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rate", [1, 7, 1500, 2500])
def test_seconds_are_filled_in_order_and_at_the_rate(rate: int) -> None:
    count = min(rate * 400, 600_000)
    seconds = Traffic(rate).seconds_of(0, count)
    assert seconds[0] == 0
    assert (np.diff(seconds) >= 0).all()
    per_second = np.bincount(seconds)[:-1]
    assert per_second.min() > 0
    assert len(per_second) == pytest.approx(count / rate, abs=2)


def test_counts_are_normal_around_the_rate() -> None:
    traffic = Traffic(1500, spread=0.05, seed=3)
    counts = np.diff(traffic.before(np.arange(20_001)))
    assert counts.mean() == pytest.approx(1500, abs=0.1)
    assert counts.std() == pytest.approx(75, rel=0.05)
    within = (np.abs(counts - 1500) < 75).mean()
    assert within == pytest.approx(0.683, abs=0.02)


def test_steady_traffic_has_no_spread() -> None:
    assert set(np.diff(Traffic(2500, spread=0.0).before(np.arange(100)))) == {2500}


def test_traffic_far_from_the_start_needs_no_counting() -> None:
    traffic, far = Traffic(2500, seed=1), 10**12
    seconds = traffic.seconds_of(far, far + 10_000)
    assert seconds[0] == pytest.approx(far / 2500, abs=1)
    assert (traffic.before(seconds) <= np.arange(far, far + 10_000)).all()
    assert (traffic.before(seconds + 1) > np.arange(far, far + 10_000)).all()


# ── text ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_line_has_65_bytes_and_says_what_the_row_says(kind: Kind) -> None:
    rows = kind.batch(options(), 40_000, 41_000)
    text = kind.batch(options(view="text"), 40_000, 41_000).column("value")
    assert pc.unique(pc.binary_length(text)).to_pylist() == [RECORD_BYTES]
    parts = pc.split_pattern(text, ",")
    for at, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True)):
        written = pc.list_element(parts, at)
        if not pa.types.is_timestamp(field.type):
            assert written.cast(field.type).equals(column), field.name
        elif kind is EVENTS:
            assert written.cast(pa.int64()).equals(
                column.cast(pa.timestamp("s", tz="UTC")).cast(pa.int64())
            )
        else:
            assert written.cast(field.type).equals(column)


# ── roads ────────────────────────────────────────────────────────────────────────────────────


def test_a_vehicle_reports_about_every_30_seconds_and_goes_on() -> None:
    road = columns(REPORTS, 15 * 30 * 20, rate="15")
    order = np.lexsort((road["timestamp"], road["vehicle"]))
    same = np.diff(road["vehicle"][order]) == 0
    gaps = np.diff(road["timestamp"][order])[same] / 1e6
    assert gaps.mean() == pytest.approx(REPORT_EVERY_S, abs=0.5)
    assert np.abs(gaps - REPORT_EVERY_S).max() <= 3
    for name in ("highway", "direction"):
        assert (np.diff(road[name][order])[same] == 0).all()
    step = np.diff(road["position"][order])[same]
    towards = np.where(road["direction"][order][1:][same] == 0, 1, -1)
    feet = step * towards % ROAD_FEET
    assert feet.min() >= 40 * 44 - 1, "30 s at 40 mph are 1760 feet"
    assert feet.max() <= 100 * 44 + 1


def test_trips_end_and_lanes_tell_when() -> None:
    road = columns(REPORTS, 2 * 30 * TRIP * 3, rate="2")
    reports = np.unique(road["vehicle"], return_counts=True)[1]
    assert reports.max() == TRIP
    assert (road["lane"] == 0).mean() == pytest.approx(1 / TRIP, rel=0.1)
    assert set(road["lane"]) == set(range(LANES))


def test_segments_speeds_and_congestion() -> None:
    road = columns(REPORTS, 200_000, rate="1500", seed="5")
    assert (road["segment"] == road["position"] // SEGMENT_FEET).all()
    assert set(road["segment"]) == set(range(100))
    assert set(road["highway"]) == {0, 1, 2, 3}
    slow = road["speed"] < 40
    assert slow.mean() == pytest.approx(CONGESTED_SHARE, abs=0.03)
    stretch = (road["highway"] * 2 + road["direction"]) * 100 + road["segment"]
    jammed = np.bincount(stretch, slow) / np.bincount(stretch)
    assert set(jammed) <= {0.0, 1.0}, "within five minutes a stretch is congested or it is not"
    assert road["speed"].max() <= 100


# ── clusters ─────────────────────────────────────────────────────────────────────────────────


def shares(values: np.ndarray) -> list[float]:
    return list(np.bincount(values) / len(values))


def test_event_types_and_categories_have_their_shares() -> None:
    cluster = columns(EVENTS, 300_000)
    assert shares(cluster["eventType"]) == pytest.approx([p / 100 for p in TYPE_PERCENT], abs=0.01)
    assert shares(cluster["category"]) == pytest.approx([p / 100 for p in CATEGORY_PERCENT], abs=0.05)


def test_a_job_keeps_what_is_its_own() -> None:
    cluster = columns(EVENTS, 50_000)
    order = np.argsort(cluster["jobId"], kind="stable")
    same = np.diff(cluster["jobId"][order]) == 0
    for name in ("userId", "category", "priority"):
        assert (np.diff(cluster[name][order])[same] == 0).all()


def test_jobs_come_and_go() -> None:
    start = 1_000_000
    job = EVENTS.batch(options(), start, start + 10_000).column("jobId").to_numpy()
    newest = FIRST_JOB + np.arange(start, start + 10_000) // EVENTS_PER_JOB
    age = newest - job
    assert age.min() == 0
    assert JOBS_ALIVE * 0.9 < age.max() < JOBS_ALIVE
    assert np.median(age) == pytest.approx(JOBS_ALIVE / 8, rel=0.1)


def test_resources_are_shares_of_a_machine() -> None:
    cluster = columns(EVENTS, 50_000)
    for name, most in (("cpu", 0.5), ("ram", 0.5), ("disk", 0.1)):
        assert 0 <= cluster[name].min() <= cluster[name].max() < most
        assert (np.rint(cluster[name] * 1000).astype(np.float32) / np.float32(1000) == cluster[name]).all()


# ── options ──────────────────────────────────────────────────────────────────────────────────


def test_defaults_are_the_paper_s() -> None:
    defaults = options()
    assert (defaults.traffic.rate, defaults.per_batch, defaults.view, defaults.unthrottled) == (
        1500,
        4500,
        "rows",
        False,
    )
    first = REPORTS.batch(defaults, 0, 1).column("timestamp")[0].value
    assert first == BASE_TIME_S * 1_000_000
    assert options(RATE="2500").per_batch == 7500


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", "0"),
        ("rate", "fast"),
        ("spread", "0.5"),
        ("view", "rivers"),
        ("unthrottled", "yes"),
        ("records", "-1"),
        ("speed", "1"),
    ],
)
def test_wrong_options_are_refused(name: str, value: str) -> None:
    with pytest.raises(QueryError) as error:
        options(**{name: value})
    assert name in error.value.message
    assert error.value.hint
