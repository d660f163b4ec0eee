"""One operator of one query at the coordinator: its record, its current batch, its claims.

Invariants: the record on disk names a batch before any task of the batch is answered. Within a start
batches only go forward. A start that is not the query's active one is fenced.
Threads: any; one lock per operator. The lock is held while the record is written, so the batch's other
tasks wait for the write.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from headrace.checkpoint.beside.record_log import RecordLog
from headrace.checkpoint.records import (
    OperatorRecord,
    SmallFiles,
    default_location,
    opened,
    refuse_default_number,
    refuse_unfinished_branch,
)
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.coordinator.belonging import followed, settle_owner
from headrace.coordinator.claims import StageClaims, used_twice
from headrace.coordinator.committed import refuse_committed
from headrace.coordinator.leases import Leases
from headrace.coordinator.placing.pins import Home
from headrace.coordinator.planned import Base, EndedTask, PlanRequest, TimesRequest, base_by_id, newest_base
from headrace.coordinator.progress import BatchProgress, total, with_hidden
from headrace.coordinator.requests import BeginRequest, Begun, OperatorAccount, Planned
from headrace.coordinator.unread import left_unread
from headrace.coordinator.view import QueryView
from headrace.errors import Fenced, QueryError
from headrace.format.names import layout_prefix
from headrace.plan.epochs import base_of
from headrace.plan.frontier import UNTIMED, TimeInputs, advance, held_back
from headrace.plan.spec import OperatorSpec
from headrace.plan.timing import choose_timing
from headrace.wire.contract import Summary
from headrace.wire.state_reads import StateReads, together

_PROGRESS_KEPT = 100
_SKIPPED_MAX = 100  # batches that Spark's logs go back


class TrackedOperator:
    """The coordinator's account of one operator."""

    def __init__(self, view: QueryView, clock: Clock = SYSTEM_CLOCK, leases: Leases | None = None) -> None:
        self._view = view
        self._clock = clock
        self._leases = leases
        self._lock = threading.Lock()
        self._run: str | None = None
        self._uid = ""
        self._batch = -1
        self._record: OperatorRecord | None = None
        self._records: RecordLog | None = None
        self._files: SmallFiles | None = None
        self._claims: dict[int, StageClaims] = {}
        self._attempts: dict[int, dict[int, int]] = {}  # newest attempt by batch and partition
        self._summaries: OrderedDict[int, dict[int, Summary]] = OrderedDict()
        self._direct_ms: list[int | None] = []  # the largest of this run, by watermark node
        self._seen: tuple[int, list[int | None]] | None = None
        self._node: int | None = None
        self._begin_ms: dict[int, float] = {}  # by batch
        self._inputs: TimeInputs | None = None  # of a planned batch

    def plan(self, request: PlanRequest) -> Planned:
        """Begins a whole batch: every partition runs as the task of its number."""
        with self._lock:
            self._enter(request)
            if self._node is not None and self._node != request.node:
                raise used_twice()
            self._node, self._inputs = request.node, request.times
            assert self._record is not None
            timing = "eager"
            if request.stateful:
                timing = choose_timing(request.timing, request.watermarks, request.others).timing
            return Planned(self._record.location, self._bases(request), timing, self._placed(request.batch))

    def _placed(self, batch: int) -> dict[str, Any]:
        """The layout of a batch, as tickets have it."""
        assert self._record is not None
        origin = self._record.origin(batch)
        return {"by_range": self._record.by_range, "origin": None if origin is None else asdict(origin)}

    def _bases(self, request: PlanRequest) -> list[Base]:
        assert self._record is not None
        numbers = range(request.spec.partitions)
        if request.ids:
            bases = [base_by_id(state_id, number) for number, state_id in enumerate(request.ids)]
            is_same = self._record.origin(request.batch) is None
            return bases if is_same else [newest_base(bases)] * len(numbers)
        base = base_of(self._record.begun, request.batch)
        attempts = self._attempts_of(base)
        return [Base(base, None, attempts.get(number)) for number in numbers]

    def _enter(self, request: BeginRequest | PlanRequest) -> None:
        """Switches to the request's start and batch, or refuses the request."""
        begun_ms = self._clock.monotonic_ms()
        if request.run != self._run:
            self._start_run(request)
        if request.uid != self._uid:
            raise QueryError(
                f"two operators of one query are named {request.spec.name}",
                hint="give each its own name with .name(...)",
            )
        if request.batch != self._batch:
            self._start_batch(request)
            self._begin_ms[request.batch] = self._clock.monotonic_ms() - begun_ms

    @property
    def uid(self) -> str:
        """The id of the operator in the plan of the current start."""
        return self._uid

    def begin(self, request: BeginRequest, upstream_ms: Sequence[int | None] = ()) -> Begun:
        """Answers one task. `upstream_ms` are the bounds that operators below set for the watermark."""
        with self._lock:
            self._enter(request)
            assert self._record is not None
            base, partitions = base_of(self._record.begun, request.batch), self._claim(request)
            mine = self._attempts.setdefault(request.batch, {})
            mine.update({number: max(request.attempt, mine.get(number, -1)) for number in partitions})
            attempts, seen_ms = self._attempts_of(base), self._event_times(request, upstream_ms)
            placed = self._placed(request.batch)
            begun = Begun(base, self._record.location, partitions, attempts, seen_ms, placed)
            work = self._record.spec.work
            if not work.is_interactive:
                return begun
            return replace(begun, timestamp_ms=self._timestamp_ms(request), work=work.to_json()["work"])

    def _attempts_of(self, base: int | None) -> dict[int, int]:
        return {} if base is None else self._attempts.get(base, {})

    def _claim(self, request: BeginRequest) -> list[int]:
        if request.avoid is not None:  # a repeated request, for another owner only
            return [] if request.partition is None else [request.partition]
        claims = self._claims.setdefault(request.stage, StageClaims(request.spec.partitions))
        return claims.arrive(request.task, request.attempt, request.partition)

    def _start_run(self, request: BeginRequest | PlanRequest) -> None:
        active = self._view.active_run(request.query)
        if active != request.run:
            raise Fenced(f"run {request.run} of query {request.query} is over")
        files = self._view.checkpoint_files(request.query)
        records = RecordLog(files, request.spec.name)
        refuse_committed(files, request.batch)
        stored = records.record
        fresh = request.new or (stored is None and self._view.started_fresh(request.query))
        location = state_location(request.location, files.root)
        if stored is not None:
            stored = followed(self._view, request.query, stored, location)
        if stored is not None:
            refuse_unfinished_branch(stored, request.query, files.root)
        if stored is not None and not request.rescales:
            refuse_default_number(stored, request.spec)
        self._record = opened(stored, request.spec, location, request.batch, new=fresh, path=records.where)
        if stored is not None and isinstance(request, BeginRequest) and not request.new:
            self._refuse_unread(request, stored.begun)
        is_new = not self._record.begun
        settle_owner(self._view, request.query, files.root, self._record.location, new=is_new)
        if self._leases is not None:
            self._leases.take(request.query, request.run, files)
        self._run, self._uid, self._batch = request.run, request.uid, -1
        self._files, self._records = files, records
        self._summaries.clear()
        self._begin_ms = {}
        self._attempts = {}
        self._direct_ms, self._seen = [], None
        self._node = None

    def _refuse_unread(self, request: BeginRequest, begun: Sequence[int]) -> None:
        """Refuse to start over a batch of an earlier run whose rows never came."""
        base = base_of(begun, request.batch)
        skipped = [] if base is None else list(range(base + 1, request.batch))[-_SKIPPED_MAX:]
        unread = self._view.first_with_input(request.query, request.spec.name, skipped) if skipped else None
        if unread is not None:
            raise left_unread(request.spec.name, unread)

    def skips(self, request: BeginRequest) -> bool:
        """Whether the request begins a batch, and the operator did not run in the one before."""
        with self._lock:
            newest = self._batch if request.run == self._run else -1
            return newest < request.batch - 1

    def ran_in(self, run: str, batch: int) -> bool:
        """Whether a batch of a run has reached the operator."""
        with self._lock:
            return run == self._run and self._batch >= batch

    def _start_batch(self, request: BeginRequest | PlanRequest) -> None:
        if request.batch < self._batch:
            raise Fenced(f"batch {request.batch} of operator {request.spec.name} is over")
        self._refuse_after_half_a_batch(request.spec)
        if self._leases is not None:
            self._leases.check(request.run)
        assert self._record is not None
        assert self._records is not None
        record = self._record.began(request.batch)
        if record != self._record or self._batch < 0:  # the first record of a run fences an earlier run
            self._records.put(record, request.run)
        self._record, self._batch = record, request.batch
        self._claims = {}
        self._node = self._inputs = None
        base = base_of(record.begun, request.batch)
        self._attempts = {batch: newest for batch, newest in self._attempts.items() if batch == base}

    def _refuse_after_half_a_batch(self, spec: OperatorSpec) -> None:
        evaluated = len(self._summaries.get(self._batch, {}))
        if self._batch >= 0 and evaluated < spec.partitions:
            raise QueryError(
                f"batch {self._batch} evaluated {evaluated} of {spec.partitions} partitions of {spec.name}",
                hint="a foreachBatch function must use the whole batch (write it, count it), not only show "
                "or limit it; correct it and start from a new checkpoint",
            )

    def _event_times(self, request: BeginRequest, upstream_ms: Sequence[int | None]) -> list[int | None]:
        """The batch's event times, decided once per batch.

        A task's rows came through a shuffle, so every row of the batch has already passed the watermark
        nodes and the operators below.
        """
        times, spec = request.times, request.spec
        if not times.nodes:
            return []
        if self._seen is None or self._seen[0] != request.batch:
            seen_ms = self._view.seen_ms(request.query, request.batch, spec.name, list(times.nodes))
            self._decide(request.batch, times, seen_ms, upstream_ms)
        assert self._seen is not None
        return self._seen[1]

    def _decide(
        self,
        batch: int,
        times: TimeInputs,
        seen_ms: Sequence[int | None],
        upstream_ms: Sequence[int | None],
    ) -> None:
        assert self._record is not None
        delays = self._record.spec.delays_ms
        self._direct_ms = advance(self._direct_ms or [None] * len(seen_ms), seen_ms)
        self._seen = (batch, held_back(times, delays, self._direct_ms, upstream_ms))

    def home(self, query: str, partition: int) -> Home:
        """Where the state of a partition is."""
        with self._lock:
            assert self._record is not None
            spec, by_range = self._record.spec, self._record.by_range
            prefix = layout_prefix(query, spec.name, partition, spec.partitions, by_range=by_range)
            return Home(self._record.location, prefix)

    @property
    def inputs(self) -> TimeInputs:
        """Where the event time of a planned batch comes from."""
        with self._lock:
            return self._inputs or UNTIMED

    def is_planned(self, run: str, batch: int) -> bool:
        """Whether the JVM has planned this batch."""
        with self._lock:
            return run == self._run and batch == self._batch and self._inputs is not None

    def decided(self, request: TimesRequest, upstream_ms: Sequence[int | None]) -> list[int | None]:
        """The event times of a planned batch; Spark may read them before all of its stages have run."""
        with self._lock:
            if (request.run, request.batch) != (self._run, self._batch) or self._inputs is None:
                raise Fenced(f"batch {request.batch} of operator {request.operator} is over")
            self._decide(request.batch, self._inputs, request.direct_ms, upstream_ms)
            assert self._seen is not None
            return self._seen[1]

    def watermark_ms(self, run: str) -> int | None:
        """The watermark of the newest batch of a run, which all its partitions share; None without one."""
        with self._lock:
            if run != self._run or not self._summaries:
                return None
            newest = self._summaries[next(reversed(self._summaries))].values()
            marks = [summary.watermark_ms for summary in newest]
            return None if None in marks else min(mark for mark in marks if mark is not None)

    def ended(self, run: str, batch: int, task: EndedTask) -> None:
        """Records that a task of a planned batch has committed its partition."""
        self.committed(run, batch, task.summary)
        with self._lock:
            mine = self._attempts.setdefault(batch, {})
            number = task.summary.partition
            mine[number] = max(task.attempt, mine.get(number, -1))

    def _timestamp_ms(self, request: BeginRequest) -> int:
        """Spark's time of the batch, from the offset log, so that a replay gets the same time."""
        assert self._files is not None
        return batch_timestamp_ms(self._files.read(f"offsets/{request.batch}") or "")

    def committed(self, run: str, batch: int, summary: Summary) -> None:
        with self._lock:
            self._refuse_earlier(run)
            self._summaries.setdefault(batch, {})[summary.partition] = summary
            self._complete_earlier(summary)
            while len(self._summaries) > _PROGRESS_KEPT:
                self._begin_ms.pop(self._summaries.popitem(last=False)[0], None)

    def _complete_earlier(self, summary: Summary) -> None:
        """Adds the times of a commit that ended while this batch ran."""
        hidden = summary.hidden
        earlier = self._summaries.get(hidden.version, {}) if hidden else {}
        if hidden and summary.partition in earlier:
            earlier[summary.partition] = with_hidden(earlier[summary.partition], hidden)

    def _refuse_earlier(self, run: str) -> None:
        if run != self._run:
            raise Fenced(f"run {run} is over", hint="nothing to do: a newer start of the query goes on")

    def reads_since(self, batch: int) -> list[tuple[int, StateReads]]:
        """The reads of state of each batch from `batch` on."""
        with self._lock:
            parts = [
                (number, list(of.values())) for number, of in self._summaries.items() if number >= batch
            ]
        return [(number, together([part.reads for part in of])) for number, of in parts]

    def progress(self) -> list[BatchProgress]:
        """The last batches of the current start, oldest first."""
        with self._lock:
            return self._totals(since=0)

    def _totals(self, since: int) -> list[BatchProgress]:
        return [
            total(batch, list(parts.values()), begin_ms=self._begin_ms.get(batch, 0.0))
            for batch, parts in self._summaries.items()
            if batch >= since
        ]

    def account(self, since: int) -> OperatorAccount | None:
        """The operator and its batches from `since` on; None before its first batch."""
        with self._lock:
            if self._run is None or self._record is None or self._files is None:
                return None
            run, record, root, batches = self._run, self._record, self._files.root, self._totals(since)
        return OperatorAccount(run, record.spec, record.location, root, batches)


def batch_timestamp_ms(offsets: str) -> int:
    """The time of a batch in an entry of Spark's offset log: its second line is JSON."""
    lines = offsets.splitlines()
    return int(json.loads(lines[1])["batchTimestampMs"]) if len(lines) > 1 else 0


def state_location(configured: str | None, checkpoint_root: str) -> str:
    """The configured state location, or a folder beside a checkpoint that is on a file system."""
    if configured:
        return configured.removeprefix("file://")
    inside = default_location(checkpoint_root)
    if inside is not None:
        return inside
    raise QueryError(
        f"the checkpoint {checkpoint_root} is not on a file system, so there is no default state location",
        hint="set spark.headrace.state.location to a directory that all machines share, to s3://… or az://…",
    )
