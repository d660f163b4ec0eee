"""Protects what is special to kept rows of sessions: what was read ahead is used only while it is true,
changes no answer, and pays. The log does not keep the rows of sessions that are over."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import StateCorrupt
from headrace.plan.reading import ReadAhead, ReadBy, Reading
from headrace.plan.spec import HASH, OperatorSpec
from headrace.row.run import Run
from headrace.store.aur.buffer import many_ahead, soonest
from headrace.store.aur.compact import INPUTS_MAX, ROWS_MIN, chosen
from headrace.store.aur.log import FEW_BYTES, LOGS, RowLog, logs_of, split
from headrace.store.aur.store import AurStore
from headrace.store.rows.kept_layout import KeptLayout, ordered, pieces_of
from headrace.testing.contracts.store_contract import SECOND, SESSION, keeping
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel, batch_of

SHARE = 64 << 10


@pytest.fixture
def uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes as Spark's are: every key has its own, all over the range."""

    def spread(spec: OperatorSpec, rows: list[Row]) -> pa.RecordBatch:
        batch = batch_of(spec, rows)
        keys = np.array([row.key for row in rows], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return batch.set_column(0, HASH, pa.array(keys.view(np.int64)))

    monkeypatch.setattr("headrace.testing.contracts.store_lab.batch_of", spread)


def lab_in(
    folder: Path, ratio: float, share: int = SHARE, by: ReadBy = "rate"
) -> tuple[StoreLab, StoreModel]:
    case = replace(keeping(SESSION), store="aur", read_ratio=ratio, read_by=by)
    return StoreLab(case, folder, share), StoreModel(case)


def run(
    lab: StoreLab, model: StoreModel, epochs: int, keys: int = 30, *, compact: bool = False, start: int = 0
) -> int:
    """Every second a few keys begin, each with three rows in three epochs, on disk before they end.

    Returns how many sessions ended.
    """
    ended = 0
    for now in range(start, start + epochs):
        rows = [
            Row((now - age) * keys + key, now * SECOND + key, key)
            for age in (0, 1, 2)
            for key in range(keys)
            if now >= age
        ]
        until = (now - 3) * SECOND
        results = model.epoch(rows, until)
        assert lab.epoch(rows, until) == results
        ended += len(results)
        if compact:
            lab.compact()
    return ended


def store_of(lab: StoreLab) -> AurStore:
    assert isinstance(lab.store, AurStore)
    return lab.store


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page cache has nothing of the log."""
    monkeypatch.setattr(RowLog, "is_cached", lambda self: False)


@pytest.mark.usefixtures("uniform", "cold")
def test_most_sessions_are_found_read_ahead(tmp_path: Path) -> None:
    lab, model = lab_in(tmp_path, 0.02)
    run(lab, model, 40)
    count = store_of(lab).read_ahead
    assert count.hits > 4 * count.misses
    assert count.hits <= count.ahead
    assert count.in_vain < count.ahead // 10


@pytest.mark.parametrize("by", ["rate", "share", "alone"])
def test_without_a_ratio_nothing_is_read_ahead(tmp_path: Path, by: ReadBy) -> None:
    lab, model = lab_in(tmp_path, 0.0, by=by)
    ended = run(lab, model, 20)
    assert store_of(lab).read_ahead == ReadAhead(misses=ended)


@pytest.mark.usefixtures("uniform")
def test_a_log_in_the_page_cache_is_not_read_ahead_by_rate(tmp_path: Path) -> None:
    for by, is_ahead in (("rate", False), ("share", True)):
        lab, model = lab_in(tmp_path / by, 0.5, by=by)  # type: ignore[arg-type]
        run(lab, model, 20)
        assert (store_of(lab).read_ahead.ahead > 0) is is_ahead


@pytest.mark.parametrize("ratio", [0.05, 0.25])
def test_the_share_is_the_share_of_the_live_sessions(ratio: float) -> None:
    by_share = Reading("share", ratio)
    assert many_ahead(by_share, live=1000, ending=400, bytes_max=1 << 30, bytes_of_one=100) == 1000 * ratio
    assert many_ahead(by_share, live=1000, ending=400, bytes_max=500, bytes_of_one=100) == 5


def test_what_fits_into_memory_is_not_read(tmp_path: Path) -> None:
    lab, model = lab_in(tmp_path, 0.02, 64 << 20)
    run(lab, model, 20)
    assert store_of(lab).read_ahead == ReadAhead()


@pytest.mark.usefixtures("cold")
def test_a_session_that_grew_after_it_was_read_ahead_is_read_again(tmp_path: Path) -> None:
    lab, model = lab_in(tmp_path, 1.0, 16 << 10)
    epochs = [
        ([Row(key, key * SECOND // 50, 1) for key in range(200)], 0),
        ([Row(key, key * SECOND // 50 + 1, 2) for key in range(200)], 4_000_100),
        ([Row(key, 4 * SECOND - 1, 3) for key in range(1, 200)], 5 * SECOND),
        ([], 20 * SECOND),
    ]
    for rows, until in epochs:
        assert lab.epoch(rows, until) == model.epoch(rows, until)
    assert store_of(lab).reader.buffer.in_vain > 5


@pytest.mark.usefixtures("uniform", "cold")
@pytest.mark.parametrize("has_ends", [True, False])
def test_a_session_that_is_expected_to_grow_is_not_read_ahead(tmp_path: Path, has_ends: bool) -> None:
    """Every second session grows after some were read ahead; its rows say so."""
    window = replace(SESSION, ends="v0") if has_ends else SESSION
    case = replace(keeping(window), store="aur", read_ratio=0.15)
    lab, model = StoreLab(case, tmp_path, 16 << 10), StoreModel(case)
    epochs = [
        ([Row(key, key * SECOND // 50, 10 * SECOND * (key % 2)) for key in range(200)], 0),
        ([Row(key, key * SECOND // 50 + 1, None) for key in range(200)], 4_000_100),
        ([Row(key, 4 * SECOND - 1, 3) for key in range(1, 200, 2)], 5 * SECOND),
        ([], 20 * SECOND),
    ]
    for rows, until in epochs:
        assert lab.epoch(rows, until) == model.epoch(rows, until)
    assert (store_of(lab).reader.buffer.in_vain == 0) is has_ends


@pytest.mark.long
def test_the_log_forgets_sessions_that_are_over(tmp_path: Path) -> None:
    lab, model = lab_in(tmp_path, 0.02, 256 << 10)
    run(lab, model, 60, 100, compact=True)
    live = sum(len(group.rows) for group in model.groups.values())
    kept = sum(segment.rows for segment in logs_of(lab.store.segments))
    assert kept < 4 * live + 2 * ROWS_MIN


def test_a_missing_row_is_no_answer(tmp_path: Path) -> None:
    lab, _ = lab_in(tmp_path, 0.02, 64 << 20)
    lab.epoch([Row(1, 0, 1), Row(1, 1, 2)], None)
    log = store_of(lab).log
    (group,) = log.resident.groups
    rows = group.run
    log.resident.groups = [replace(group, run=Run(rows.order[:1], rows.words[:1], rows.heap))]
    with pytest.raises(StateCorrupt, match="does not have the rows"):
        lab.epoch([], 60 * SECOND)


@pytest.mark.parametrize(
    ("ratio", "live", "missed", "room", "want"),
    [
        (0.02, 1000, 0, 10_000, 20),
        (0.02, 1000, 5, 10_000, 80),
        (0.0, 1000, 5, 10_000, 0),
        (1.0, 9, 0, 40, 4),
    ],
)
def test_how_many_are_read_ahead(ratio: float, live: int, missed: int, room: int, want: int) -> None:
    assert many_ahead(Reading("rate", ratio), live, missed, room, 10) == want


def test_sessions_are_read_ahead_as_far_as_they_are_sure_to_end() -> None:
    ends = np.array([50, 10, 40, 20, 30])
    assert soonest(ends, 9, 0, 30).tolist() == [1, 3, 4]
    assert soonest(ends, 2, 0, 30).tolist() == [1, 3]
    assert soonest(ends, 9, 4, 30).tolist() == [1, 3, 4, 2]
    assert soonest(ends, 9, 0, None).tolist() == [1, 3, 4, 2, 0]


def test_the_past_is_compacted_when_it_may_be_half_of_the_rest() -> None:
    rows, sizes = [3000, 3000, 8000], [1, 1, 1]
    assert chosen(rows, sizes, [True, True, False], True, 1.5) == slice(0, 2)
    assert chosen(rows, sizes, [True, True, False], True, 4.0) is None
    assert chosen(rows, sizes, [True, True, False], False, 1.5) is None
    assert chosen(rows, sizes, [True, False, False], True, 1.5) is None
    assert chosen([1] * 40, [1] * 40, [False] * 40, True, 1.5) == slice(0, INPUTS_MAX)


def test_the_past_stays_while_it_is_known_to_be_alive() -> None:
    rows, past = [3000, 3000, 8000], [True, True, False]
    assert chosen(rows, [1] * 3, past, True, 1.5, live=14_000) is None
    assert chosen(rows, [1] * 3, past, True, 1.5, live=9000) == slice(0, 2)
    assert chosen(rows, [1] * 3, past, True, 1.5, live=0) == slice(0, 2)


@pytest.mark.parametrize("beside_bytes", [FEW_BYTES, 0])
def test_what_a_compaction_wrote_is_still_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside_bytes: int
) -> None:
    monkeypatch.setattr("headrace.store.aur.log.FEW_BYTES", beside_bytes)
    lab, model = lab_in(tmp_path, 0.02, 64 << 20)
    for now in range(100):  # long sessions, so that their log is put together
        rows, until = [Row(key, now * SECOND, now) for key in range(50)], (now - 3) * SECOND
        assert lab.epoch(rows, until) == model.epoch(rows, until)
        lab.compact()
    log = store_of(lab).log
    assert log.segments[0].rows > 1000
    assert not log.on_disk
    assert lab.epoch([], 200 * SECOND) == model.epoch([], 200 * SECOND)


@pytest.mark.usefixtures("uniform")
def test_a_compaction_keeps_what_was_alive_when_it_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions are copied from memory or read from their segments, while batches go on."""
    lab, model = lab_in(tmp_path / "state", 0.02, 64 << 20)

    def run(begin: int, end: int) -> None:
        """One session goes on, so that no segment is dead as a whole; the others are short."""
        for now in range(begin, end):
            rows = [
                Row(0, now * SECOND, now),
                *(Row(now * 400 + key, now * SECOND, key) for key in range(400)),
            ]
            until = (now - 3) * SECOND
            assert lab.epoch(rows, until) == model.epoch(rows, until)

    run(1, 30)
    planned = []
    for few_bytes in (FEW_BYTES, -1):
        monkeypatch.setattr("headrace.store.aur.store.FEW_BYTES", few_bytes)
        planned.append(lab.store.maintenance())
    run(30, 35)
    written = []
    for number, compaction in enumerate(planned):
        assert compaction is not None
        assert compaction.kind.name == LOGS[0]
        path = tmp_path / str(number)
        assert compaction.write(path, threading.Event())
        written.append(path.read_bytes())
    assert written[0] == written[1]
    assert lab.epoch([], 200 * SECOND) == model.epoch([], 200 * SECOND)


@pytest.mark.usefixtures("uniform")
def test_a_compaction_that_no_version_takes_is_planned_again(tmp_path: Path) -> None:
    """A partition whose lane is busy drops the job; the sessions do not wait a whole gap for the next."""
    lab, model = lab_in(tmp_path, 0.02, 64 << 20)
    for now in range(1, 30):
        rows = [Row(0, now * SECOND, now), *(Row(now * 400 + key, now * SECOND, key) for key in range(400))]
        assert lab.epoch(rows, (now - 3) * SECOND) == model.epoch(rows, (now - 3) * SECOND)
    dropped, again = lab.store.maintenance(), lab.store.maintenance()
    assert dropped is not None
    assert again is not None
    assert again.inputs == dropped.inputs
    assert lab.compact()
    assert store_of(lab).compacted_us == {LOGS[0]: store_of(lab).watermark_us}


def test_rows_are_split_by_hash_and_none_is_lost() -> None:
    case = keeping(SESSION)
    layout = KeptLayout(replace(case, instances=3))
    rows = [Row(key, key, key) for key in range(500)]
    hashes = np.arange(500, dtype=np.uint64) + np.uint64(5 << 61)  # of one partition of eight
    batch = batch_of(case, rows).set_column(0, HASH, pa.array(hashes.view(np.int64)))
    run = ordered(pieces_of(layout, batch))
    parts = split(layout, run, 3)
    assert [kind.name for kind, _ in parts] == [*LOGS[:3]]
    assert all(120 < len(part) < 220 and (np.diff(part.order) > 0).all() for _, part in parts)
    assert sorted(np.concatenate([part.order for _, part in parts])) == run.order.tolist()
    assert sum(len(part.heap) for _, part in parts) == len(run.heap), "each has the strings of its own rows"


@pytest.mark.usefixtures("uniform")
@pytest.mark.parametrize("share", [16 << 10, 256 << 10])
def test_instances_are_compacted_by_themselves(tmp_path: Path, share: int) -> None:
    case = replace(keeping(SESSION), store="aur", instances=2)
    lab, model = StoreLab(case, tmp_path, share), StoreModel(case)
    run(lab, model, 30, 100, compact=True)
    lab.reopen()
    run(lab, model, 30, 100, compact=True, start=30)
    kinds = {segment.kind for segment in logs_of(lab.store.segments)}
    assert kinds == {*LOGS[:2]}
    live = sum(len(group.rows) for group in model.groups.values())
    kept = sum(segment.rows for segment in logs_of(lab.store.segments))
    assert kept < 4 * live + 4 * ROWS_MIN


@pytest.mark.usefixtures("uniform")
@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 1), (2, 3)])
def test_a_query_goes_on_with_another_number_of_instances(tmp_path: Path, before: int, after: int) -> None:
    case = replace(keeping(SESSION), store="aur", instances=before)
    lab, model = StoreLab(case, tmp_path, 1 << 20), StoreModel(case)
    run(lab, model, 10, 60)
    lab.spec = replace(case, instances=after)
    lab.reopen()
    run(lab, model, 30, 60, compact=True, start=10)
    kinds = {segment.kind for segment in logs_of(lab.store.segments)}
    assert kinds <= {*LOGS[:after]}, "what the others had is dead"
