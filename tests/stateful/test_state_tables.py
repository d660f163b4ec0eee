"""Protects state as a table. For every store, every version that is retained reads back as the model's rows
at that moment, whatever was compacted, moved or reopened since. Lookups and window bounds give just the
rows that a filter of the whole table gives."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.format.manifest import Manifest
from headrace.inspect.changes import KINDS, changes_between
from headrace.inspect.partition import open_partition
from headrace.inspect.selection import Selection
from headrace.plan.spec import Grouped, OperatorSpec
from headrace.store.rows.slices import is_closed
from headrace.testing.contracts.store_contract import (
    AMPLE,
    FOLDS,
    KEPT,
    LATE_SESSION,
    SECOND,
    SESSION,
    SESSIONS,
    SLIDE,
    TINY,
    TUMBLE,
    folding,
    keeping,
)
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel, accumulated, name_of

GROUPED = replace(keeping(SLIDE), work=Grouped())
STORES: dict[str, tuple[OperatorSpec, ...]] = {
    "rmw": (*FOLDS, folding(SLIDE, "final"), folding(TUMBLE, "changes"), *SESSIONS),
    "memory": (*FOLDS, *SESSIONS),
    "aar": KEPT,
    "range": KEPT,
    "auto": (GROUPED, replace(GROUPED, window=SESSION)),
    "aur": (keeping(SESSION), keeping(LATE_SESSION), replace(keeping(SESSION), instances=2)),
    "rocksdb": (*FOLDS, *SESSIONS, *KEPT, keeping(SESSION)),
}
CASES = [(name, number) for name, specs in STORES.items() for number in range(len(specs))]

rows_of_epoch = st.lists(
    st.builds(
        Row,
        st.integers(0, 9),
        st.integers(-10, 60).map(lambda seconds: seconds * SECOND),
        st.none() | st.integers(-5, 5),
    ),
    max_size=25,
)
epochs_of_run = st.lists(
    st.tuples(rows_of_epoch, st.integers(0, 12).map(lambda seconds: seconds * SECOND), st.booleans()),
    min_size=1,
    max_size=5,
)


@dataclass
class RowsHeld:
    """All rows that were not late, and which of them are state: plain Python, independent of any store."""

    spec: OperatorSpec
    sessions: StoreModel
    watermark_us: int | None = None
    rows: list[Row] = field(default_factory=list)

    def epoch(self, rows: list[Row], watermark_us: int) -> None:
        self.rows += [row for row in rows if not self._is_closed(row, self.watermark_us)]
        self.sessions.epoch(rows, watermark_us)
        self.watermark_us = watermark_us
        self.rows = [row for row in self.rows if not self._is_closed(row, watermark_us)]

    def table(self) -> Counter[tuple[Any, ...]]:
        window = self.spec.window
        if window is not None and window.session:
            groups = self.sessions.groups.values()
            return Counter(
                answer for group in groups for answer in self._answers(group.key, group.bounds, group.rows)
            )
        if self.spec.work.keeps_rows:
            return Counter(answer for row in self.rows for answer in self._answers(row.key, (), [row]))
        groups_of: dict[tuple[int, Any], list[Row]] = defaultdict(list)
        for row in self.rows:
            groups_of[row.key, self._bounds(row)].append(row)
        return Counter(
            answer for (key, of), rows in groups_of.items() for answer in self._answers(key, of, rows)
        )

    def _answers(self, key: int, bounds: Any, rows: list[Row]) -> list[tuple[Any, ...]]:
        start = (name_of(key), *(bounds or ()))
        if self.spec.work.keeps_rows:
            return [(*start, row.time_us, row.value) for row in rows]
        return [(*start, *(accumulated(one, rows) for one in self.spec.work.accumulators))]

    def _bounds(self, row: Row) -> tuple[int, ...]:
        window = self.spec.window
        if window is None:
            return ()
        start = self._slice(row)
        return start, start + window.slice_us

    def _slice(self, row: Row) -> int:
        window = self.spec.window
        assert window is not None
        return row.time_us - (row.time_us - window.offset_us) % window.slice_us

    def _is_closed(self, row: Row, watermark_us: int | None) -> bool:
        window = self.spec.window
        if window is None or window.session:
            return False
        return is_closed(self._slice(row), window, watermark_us)


def plain(batches: Iterable[pa.RecordBatch]) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        columns = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns[1:]
        ]
        rows.update(zip(*(column.to_pylist() for column in columns), strict=True))
    return rows


def read(lab: StoreLab, manifest: Manifest, selection: Selection) -> Counter[tuple[Any, ...]]:
    with open_partition(lab.home.blobs, "p", lab.spec, manifest) as state:
        return plain(state.batches(selection, chunk_rows=7))


@pytest.mark.parametrize(("store", "number"), CASES)
def test_every_version_reads_back_as_the_model(store: str, number: int) -> None:
    spec = replace(STORES[store][number], store=store)

    @settings(
        max_examples=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(epochs=epochs_of_run, share=st.sampled_from([AMPLE] if store == "memory" else [TINY, AMPLE]))
    def check_versions(epochs: list[tuple[list[Row], int, bool]], share: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            lab = StoreLab(spec, Path(folder), share)
            model, watermark = RowsHeld(spec, StoreModel(spec)), 0
            versions: list[tuple[Manifest, Counter[tuple[Any, ...]]]] = []
            for rows, step, upkeep in epochs:
                watermark += step
                lab.epoch(rows, watermark)
                model.epoch(rows, watermark)
                if upkeep:
                    lab.compact()
                    lab.move()
                assert lab.manifest is not None
                versions.append((lab.manifest, model.table()))
            for manifest, expected in versions:
                assert read(lab, manifest, Selection(spec)) == expected
                check_bounds(lab, manifest, expected)
                check_lookup(lab, manifest, expected)
            for (old, before), (new, after) in itertools.pairwise(versions):
                check_changes(lab, old, new, before, after)

    def check_changes(
        lab: StoreLab, old: Manifest, new: Manifest, before: Counter[Any], after: Counter[Any]
    ) -> None:
        with (
            open_partition(lab.home.blobs, "p", spec, old) as left,
            open_partition(lab.home.blobs, "p", spec, new) as right,
        ):
            parts = list(changes_between(left, right))
        changes = {kind: plain(batch for part, batch in parts if part == kind) for kind in KINDS}
        if spec.work.keeps_rows:
            assert (changes["insert"], changes["delete"]) == (after - before, before - after)
            return
        size = 1 if spec.window is None else 2
        ids = [{row[:size]: row for row in version} for version in (before, after)]
        assert set(changes["insert"]) == {ids[1][one] for one in ids[1].keys() - ids[0].keys()}
        assert set(changes["delete"]) == {ids[0][one] for one in ids[0].keys() - ids[1].keys()}
        both = ids[0].keys() & ids[1].keys()
        assert set(changes["update"]) == {ids[1][one] for one in both if ids[0][one] != ids[1][one]}

    def check_bounds(lab: StoreLab, manifest: Manifest, expected: Counter[tuple[Any, ...]]) -> None:
        if spec.window is None:
            return
        low, high = 5 * SECOND, 25 * SECOND
        fitting = Counter({row: n for row, n in expected.items() if low <= row[1] < high})
        assert read(lab, manifest, Selection(spec, from_us=low, before_us=high)) == fitting

    def check_lookup(lab: StoreLab, manifest: Manifest, expected: Counter[tuple[Any, ...]]) -> None:
        names = name_of(3), name_of(7)
        fitting = Counter({row: n for row, n in expected.items() if row[0] in names})
        selection = Selection(spec, (("k0", names),))
        vars(selection)["hashes"] = np.array([3 << 40, 7 << 40], np.uint64)  # as the lab hashes
        assert read(lab, manifest, selection) == fitting

    check_versions()
