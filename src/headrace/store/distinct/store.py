"""The store of distinct values: groups in one store, the values that they have seen in one store per input.

A row reaches the groups with nulls in place of values that its group has seen.
Invariants: all stores have the same watermark and commit together.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.spec import OperatorSpec
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.row.layout import RowLayout
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Gathered, of_kind
from headrace.store.base.jobs import Job
from headrace.store.base.share import Part, PartialShare, Share
from headrace.store.base.waits import StateWaits
from headrace.store.changes.store import ChangingStore
from headrace.store.distinct.seen import SeenStore, seen_spec
from headrace.store.fold.rmw import RmwStore
from headrace.store.segments.reader import Segment

GROUPS = "rows"


def distinct_kinds(spec: OperatorSpec) -> tuple[FileKind, ...]:
    """The kinds of segments that the store writes."""
    seen = (FileKind(_seen(name), RowLayout(seen_spec(spec, name))) for name in work_of(spec).columns)
    return (FileKind(GROUPS, RowLayout(_inner(spec))), *seen)


def work_of(spec: OperatorSpec) -> Distinct:
    assert isinstance(spec.work, Distinct)
    return spec.work


def _seen(column: str) -> str:
    return f"seen-{column}"


def _inner(spec: OperatorSpec) -> OperatorSpec:
    return replace(spec, work=work_of(spec).inner)


class DistinctStore(Store):
    """Groups and the values that they have seen."""

    def __init__(
        self,
        spec: OperatorSpec,
        share: Share,
        files: Files,
        segments: list[Segment],
        watermark_us: int | None,
        known_keys: int = 0,
    ) -> None:
        self.spec, self.segments = spec, segments
        columns = work_of(spec).columns
        part = PartialShare(share, Part(1, len(columns) + 1))
        kind = ChangingStore if isinstance(work_of(spec).inner, Retracting) else RmwStore
        own = of_kind(segments, GROUPS)
        self.groups = kind(_inner(spec), part, files, own, watermark_us, known_keys)
        self.seen = {
            name: SeenStore(
                seen_spec(spec, name),
                part,
                files,
                of_kind(segments, _seen(name)),
                watermark_us,
                kind_name=_seen(name),
            )
            for name in columns
        }
        for seen in self.seen.values():
            seen.waits = self.groups.waits

    def waited(self) -> StateWaits:
        return self.groups.waits

    @property
    def _all(self) -> list[RmwStore]:
        return [self.groups, *self.seen.values()]

    def apply(self, rows: pa.RecordBatch) -> None:
        for name, seen in self.seen.items():
            new = pa.array(seen.new_values(rows, name))
            at = rows.schema.get_field_index(name)
            nothing = pa.scalar(None, rows.schema.field(at).type)
            rows = rows.set_column(at, rows.schema.field(at), pc.if_else(new, rows.column(at), nothing))
        self.groups.apply(rows)

    # ── the contract ─────────────────────────────────────────────────────────────────────────

    @property
    def files(self) -> Files:
        return self.groups.files

    @files.setter
    def files(self, files: Files) -> None:
        for store in self._all:
            store.files = files

    @property
    def watermark_us(self) -> int | None:
        return self.groups.watermark_us

    @watermark_us.setter
    def watermark_us(self, watermark_us: int | None) -> None:
        for store in self._all:
            store.watermark_us = watermark_us

    @property
    def late_rows(self) -> int:
        return self.groups.late_rows

    @late_rows.setter
    def late_rows(self, late_rows: int) -> None:
        self.groups.late_rows = late_rows

    @property
    def memory_bytes(self) -> int:
        return int(np.sum([store.memory_bytes for store in self._all]))

    def gather(self, watermark_us: int | None) -> Gathered:
        parts = [store.gather(watermark_us) for store in self._all]
        sections = tuple(one for part in parts for one in part.sections)
        return Gathered(self.files, sections, tuple(one for part in parts for one in part.spilled))

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        return self.groups.results(watermark_us)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        for store in self._all:
            store.settle(of_kind(segments, store.kind_name), watermark_us)
        self.segments = segments

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return self.groups.is_live(segment, watermark_us)  # windows are those of all stores

    def keys_after(self, watermark_us: int | None) -> int:
        return self.groups.keys_after(watermark_us)

    def maintenance(self, many: int | None = None) -> Job | None:
        return next((job for store in self._all if (job := store.maintenance(many)) is not None), None)
