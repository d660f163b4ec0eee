"""How sessions lie in state rows, and how they become results. Pure functions.

    row = key columns · ordinal · flags · the operator's accumulators · first time · last time · changed

An operator that keeps its rows has one accumulator here: how many rows the session has. If the user
predicts the ends of sessions, the latest such time is a second one. Where rows have ends, their earliest
match time is another. The ordinal only distinguishes the sessions of one key. A session lasts from its
first time to `gap` after its last one; where rows have ends of their own, its last time is the latest of
these, and the gap is 0. `changed` counts the rows folded in since the last commit; in a segment of an
earlier epoch it has no meaning.
A session is dead, without a word about it anywhere, once its last time is at or below `dead_through` of the
watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.kernels.sessions.session import GONE
from headrace.plan.spec import TIME, Accumulator, Field, Fold, OperatorSpec, Window, output_schema
from headrace.plan.types import arrow_type
from headrace.row.arrays import I64, U64
from headrace.row.chunks import RESULT_ROWS
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import column_of, results_of
from headrace.store.rows.slices import times_of
from headrace.store.rows.take import rows_where

ORDINAL = "__ordinal"


@dataclass(frozen=True)
class SessionLayout:
    """The rows of the sessions of `spec`; an operator that keeps its rows has one count instead."""

    spec: OperatorSpec

    @property
    def window(self) -> Window:
        assert self.spec.window is not None, "sessions are windows"
        return self.spec.window

    @cached_property
    def rows(self) -> RowLayout:
        hidden = (
            Accumulator("min", TIME, "timestamp"),
            Accumulator("max", TIME, "timestamp"),
            Accumulator("count", None, "int64"),
        )
        return RowLayout(replace(self._keyed, work=Fold((*self.folded, *hidden))))

    @cached_property
    def groups(self) -> RowLayout:
        """Keys alone, the ordinal included."""
        return RowLayout(replace(self._keyed, work=Fold()))

    @cached_property
    def folded(self) -> tuple[Accumulator, ...]:
        if not self.spec.work.keeps_rows:
            return self.spec.work.accumulators
        counted = (Accumulator("count", None, "int64"),)
        ends, until = self.window.ends, self.window.until
        expected = () if ends is None else (Accumulator("max", ends, "timestamp"),)
        matched = () if until is None else (Accumulator("min", until, "timestamp"),)
        return (*counted, *expected, *matched)

    @cached_property
    def _keyed(self) -> OperatorSpec:
        keys = (*self.spec.keys, Field(ORDINAL, "int64"))
        return replace(self.spec, keys=keys)

    @cached_property
    def _results(self) -> RowLayout:
        return RowLayout(replace(self.spec, window=None))

    @cached_property
    def _result_words(self) -> list[int]:
        """Which words of a session row make a row of `_results`."""
        rows, results = self.rows, self._results
        keys = [*range(results.null_words), *range(rows.null_words, rows.key_width - 1)]
        flags = [rows.key_width + number for number in range(results.flag_words)]
        folded = rows.key_width + rows.flag_words
        return [*keys, *flags, *range(folded, self.first_word)]

    @property
    def count_word(self) -> int:
        """Where the number of a session's rows lies, where rows are kept."""
        return self.rows.accumulators[0].word

    @property
    def ordinal_word(self) -> int:
        return self.rows.key_width - 1

    @property
    def first_word(self) -> int:
        return self.rows.accumulators[-3].word

    @property
    def match_word(self) -> int:
        """Where the earliest match time of a session's rows lies, where rows are kept."""
        if self.window.until is None or not self.spec.work.keeps_rows:
            return self.first_word
        return self.rows.accumulators[1 if self.window.ends is None else 2].word

    @property
    def last_word(self) -> int:
        return self.rows.accumulators[-2].word

    @property
    def changed_word(self) -> int:
        return self.rows.accumulators[-1].word

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def closed_through(self, watermark_us: int | None) -> int:
        """Sessions whose last time is at most this have been passed by the watermark."""
        return GONE if watermark_us is None else watermark_us - self.window.width_us

    def dead_through(self, watermark_us: int | None) -> int:
        """Sessions, and rows by themselves, whose last time is at most this are gone for good."""
        return GONE if watermark_us is None else self.closed_through(watermark_us) - self.window.lateness_us

    def row_ends(self, rows: pa.RecordBatch) -> I64:
        """The last time of a session of each row alone: its own, or the end that it has."""
        if self.window.until is None:
            return times_of(rows)
        ends: I64 = column_of(rows.column(self.window.until), "timestamp").words[:, 0].view(np.int64)
        return ends

    def with_match_times(self, rows: pa.RecordBatch, watermark_us: int | None) -> pa.RecordBatch:
        """Kept rows with their match time in place of their end.

        A row is found again by a time inside of its session. Where rows have ends, one may come at a time
        at which a session has closed. So its match time is after all that was dead when it came.
        """
        until = self.window.until
        if until is None or not self.spec.work.keeps_rows:
            return rows
        times = np.maximum(times_of(rows), self.dead_through(watermark_us) + 1)
        at = rows.schema.get_field_index(until)
        return rows.set_column(at, rows.schema.field(at), pa.array(times).cast(rows.schema.field(at).type))

    def firsts(self, run: Run) -> I64:
        times: I64 = np.ascontiguousarray(run.words[:, self.first_word]).view(np.int64)
        return times

    def lasts(self, run: Run) -> I64:
        times: I64 = np.ascontiguousarray(run.words[:, self.last_word]).view(np.int64)
        return times

    def ends(self, words: U64) -> I64:
        """When sessions are expected to end: as the user predicts, or a gap after their last row."""
        last: I64 = np.ascontiguousarray(words[:, self.last_word]).view(np.int64) + self.window.width_us
        if self.window.ends is None:
            return last
        expected = np.ascontiguousarray(words[:, self.rows.accumulators[1].word]).view(np.int64)
        return np.maximum(last, expected)

    def counts(self, run: Run) -> I64:
        """How many rows each session has, where rows are kept."""
        counts: I64 = np.ascontiguousarray(run.words[:, self.count_word]).view(np.int64)
        return counts

    def where(self, run: Run, kept: npt.NDArray[np.bool_]) -> Run:
        """Some rows of a run, over the same heap."""
        return run if kept.all() else rows_where(run, kept)

    def unchanged(self, run: Run) -> Run:
        """The rows as they are after a commit."""
        words = run.words.copy()
        words[:, self.changed_word] = 0
        return Run(run.order, words, run.heap)

    # ── results ──────────────────────────────────────────────────────────────────────────────

    def results(self, run: Run) -> Iterator[pa.RecordBatch]:
        """Sessions as batches of the operator's output schema."""
        firsts, ends = self.firsts(run), self.lasts(run) + self.window.width_us
        plain, keys = Run(run.order, run.words[:, self._result_words], run.heap), len(self.spec.keys)
        at = 0
        for batch in results_of(self._results, plain, None, RESULT_ROWS):
            part = slice(at, at + batch.num_rows)
            bounds = [pa.array(times[part]).view(arrow_type("timestamp")) for times in (firsts, ends)]
            columns = [*batch.columns[:keys], *bounds, *batch.columns[keys:]]
            yield pa.RecordBatch.from_arrays(columns, schema=output_schema(self.spec))
            at += batch.num_rows
