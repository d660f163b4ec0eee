"""The coordinator: one method per action that tasks and hosts call in the driver.

Threads: any. `_lock` guards the operators; machines, pins and each operator have locks of their own. A
thread has at most one of them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headrace.checkpoint.beside.record_log import stored_record
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.coordinator.ended import QUERIES_KEPT, ended_beyond, resident_queries
from headrace.coordinator.leases import Leases
from headrace.coordinator.operators import TrackedOperator
from headrace.coordinator.placing.machines import HostReport, Machines
from headrace.coordinator.placing.pins import Pins
from headrace.coordinator.planned import EndedTask, PlanRequest, TimesRequest
from headrace.coordinator.progress import BatchProgress
from headrace.coordinator.requests import BeginRequest, OperatorAccount
from headrace.coordinator.unread import left_unread
from headrace.coordinator.view import QueryView
from headrace.errors import Fenced, HeadraceError
from headrace.plan.frontier import TimeInputs
from headrace.plan.lookahead import Candidates, caches_rows, candidates_of
from headrace.plan.spec import OperatorSpec
from headrace.prefetch.choices import Lookaheads
from headrace.prefetch.controller import HOT_MAX, Choice
from headrace.wire.contract import Summary

BATCHES_READ = 4  # newest batches whose reads choose the lookahead


class Coordinator:
    """Serves the actions of tasks and hosts."""

    def __init__(self, view: QueryView, clock: Clock = SYSTEM_CLOCK, holder: str = "") -> None:
        self._view = view
        self.leases = Leases(holder, self._is_over)
        self._clock = clock
        self.pins = Pins(lambda location: view.blobs_at(location, create=False))
        self.machines = Machines(clock, self.pins, lambda: view.start_hosts())
        self._lock = threading.Lock()
        self._operators: dict[tuple[str, str], TrackedOperator] = {}
        self._counts: dict[tuple[str, str], int] = {}  # of partitions; another count has other owners
        self.lookaheads = Lookaheads()

    def act(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one action and returns its answer."""
        if action == "begin":
            return self.begin(BeginRequest.of(request))
        if action == "committed":
            return self.committed(
                request["query"], request["operator"], request["run"], request["batch"], request["summary"]
            )
        if action == "heartbeat":
            fields = {name: value for name, value in request.items() if name != "machine"}
            return self.heartbeat(request["machine"], HostReport(**fields))
        if action == "plan":
            return self.plan(PlanRequest.of(request))
        if action == "partitions":
            return {"partitions": self._recorded_number(request)}
        if action == "ended":
            return self.ended(
                request["query"], request["operator"], request["run"], request["batch"], request["tasks"]
            )
        if action == "times":
            return self.times(TimesRequest(**request))
        if action == "place":
            key = (request["query"], request["operator"], request["partition"])
            return self.machines.place(key, request["base"], request["machine"], request["avoid"])
        if action == "running":
            return {"run": self._view.active_run(request["query"])}
        raise HeadraceError(f"no such action: {action}")

    def plan(self, request: PlanRequest) -> dict[str, Any]:
        """Plans a batch for the JVM operator: the common ticket, and each partition's base and owner."""
        tracked = self._operator(request.query, request.spec.name)
        planned = tracked.plan(request)
        self._count(request.query, request.spec)
        choice = self._lookahead(request, tracked, in_jvm=True)
        ticket = {
            "start": request.run,
            "query": request.query,
            "operator": request.spec.to_json(),
            "batch": request.batch,
            "location": planned.location,
            "retain": request.retain,
            "commit": request.commit,
            **planned.placed,
            "lookahead": choice.active,
        }
        partitions = [
            {
                "base": base.version,
                "base_run": base.run,
                "base_attempt": base.attempt,
                **self.machines.owner((request.query, request.spec.name, number), base.version),
            }
            for number, base in enumerate(planned.bases)
        ]
        answer = {"ticket": ticket, "partitions": partitions, "timing": planned.timing}
        return {**answer, "hot": choice.hot if caches_rows(request.spec.work) else HOT_MAX}

    def _recorded_number(self, request: dict[str, Any]) -> int:
        """The number of partitions for a start that did not set one: that of the state, if there is any."""
        number = int(request["partitions"])
        if request["rescales"]:
            return number
        record = stored_record(self._view.checkpoint_files(request["query"]), request["operator"])
        return number if record is None or not record.begun else record.known_layouts[-1].partitions

    def ended(
        self, query: str, operator: str, run: str, batch: int, tasks: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Records the tasks of a batch. The machine of a task owns the task's partition from now on."""
        tracked = self._tracked(query, operator)
        for task in map(EndedTask.of, tasks):
            tracked.ended(run, batch, task)
            self.machines.ran((query, operator, task.summary.partition), task.machine, task.executor)
            self.pins.committed(query, operator, tracked.home(query, task.summary.partition), task.summary)
        return {}

    def _count(self, query: str, spec: OperatorSpec) -> None:
        """Forgets the owners of an operator whose number of partitions has changed."""
        with self._lock:
            before = self._counts.get((query, spec.name), spec.partitions)
            self._counts[query, spec.name] = spec.partitions
        if before != spec.partitions:
            self.machines.forget(query, spec.name)

    def committed(
        self, query: str, operator: str, run: str, batch: int, fields: dict[str, Any]
    ) -> dict[str, Any]:
        """Records that a Python task has committed a partition."""
        tracked, summary = self._tracked(query, operator), Summary.of(fields)
        tracked.committed(run, batch, summary)
        self.pins.committed(query, operator, tracked.home(query, summary.partition), summary)
        return {}

    def begin(self, request: BeginRequest) -> dict[str, Any]:
        """Returns the task's partitions with base version and host, and the batch's event times."""
        tracked = self._operator(request.query, request.spec.name)
        if request.batch > 0 and tracked.skips(request):
            self._refuse_unread(request)
        upstream_ms = self._upstream_ms(request.query, request.run, request.batch, request.times)
        answer = tracked.begin(request, upstream_ms)
        self._count(request.query, request.spec)
        name, machine = request.spec.name, request.machine
        owners = [
            self.machines.place((request.query, name, partition), answer.base, machine, request.avoid)
            for partition in answer.partitions
        ]
        attempts = [answer.base_attempts.get(partition) for partition in answer.partitions]
        return {
            "base": answer.base,
            "base_attempts": attempts,
            "location": answer.location,
            "partitions": owners,
            "seen_ms": answer.seen_ms,
            "timestamp_ms": answer.timestamp_ms,
            "work": answer.work,
            "placed": answer.placed,
            "lookahead": self._lookahead(request, tracked, in_jvm=False).active,
        }

    def _lookahead(
        self, request: PlanRequest | BeginRequest, tracked: TrackedOperator, *, in_jvm: bool
    ) -> Choice:
        """Where hints of the batch come from."""
        place = (request.query, request.run, request.spec, request.prefetch)
        reads = tracked.reads_since(request.batch - BATCHES_READ)
        by_plan = (request.early, request.missing) if isinstance(request, PlanRequest) else ((), ())
        candidates = candidates_of(request.spec, in_jvm=in_jvm, early=by_plan[0], missing=by_plan[1])
        return self.lookaheads.choose(*place, candidates, reads, batch=request.batch)

    def _refuse_unread(self, request: BeginRequest) -> None:
        """Refuse to go on after a batch that has not reached every operator in its plan."""
        before = request.batch - 1
        for name in sorted(self._view.operators_before(request.query, request.batch)):
            with self._lock:
                operator = self._operators.get((request.query, name))
            if operator is None or not operator.ran_in(request.run, before):
                raise left_unread(name, before)

    def times(self, request: TimesRequest) -> dict[str, Any]:
        """Returns the event times of a planned batch, held back behind the operators below."""
        tracked = self._tracked(request.query, request.operator)
        upstream_ms = self._upstream_ms(
            request.query, request.run, request.batch, tracked.inputs, request.upstream_ms
        )
        return {"seen_ms": tracked.decided(request, upstream_ms)}

    def _upstream_ms(
        self,
        query: str,
        run: str,
        batch: int,
        inputs: TimeInputs,
        known: Mapping[str, int | None] = MappingProxyType({}),
    ) -> list[int | None]:
        """How far each upstream operator allows the watermark; its tasks of this batch have ended."""
        bounds: list[int | None] = []
        for name, hold_ms in inputs.upstream:
            at_ms = known[name] if name in known else self._watermark_ms(query, run, batch, name)
            bounds.append(None if at_ms is None else at_ms - hold_ms)
        return bounds

    def _watermark_ms(self, query: str, run: str, batch: int, name: str) -> int | None:
        """The newest watermark of an operator; one in the JVM reports it to Spark's plan first."""
        with self._lock:
            operator = self._operators.get((query, name))
        if operator is None:
            return None
        if operator.is_planned(run, batch):
            return self._view.watermark_ms(query, batch, name)
        return operator.watermark_ms(run)

    def heartbeat(self, machine: str, host: HostReport) -> dict[str, Any]:
        """Records a heartbeat. The answer stops the host, or lists the queries that have ended."""
        ending = self.machines.heartbeat(machine, host) or not self._view.alive()
        if host.in_memory:
            self.pins.warn_of_memory(machine)
        for part in host.status.get("partitions", ()):
            key = (part["query"], part.get("operator"), part.get("partition"))
            if part.get("published") is not None and self.machines.owns(machine, key):
                self.pins.published(key, part["published"])
        resident = resident_queries(host.status)
        active = self._view.active_queries() if resident and not ending else None
        return {"ending": ending, "ended": [] if active is None else sorted(resident - active)}

    def end(self) -> list[HostReport]:
        """Makes every later heartbeat stop its host; returns the hosts of all machines."""
        return self.machines.end()

    def hosts(self) -> dict[str, HostReport]:
        """The newest heartbeat of every live machine."""
        return self.machines.hosts()

    def unpublished(self, query: str) -> int:
        """The partitions with a version of the query that live hosts have yet to publish."""
        parts = [part for host in self.hosts().values() for part in host.status.get("partitions", ())]
        return sum(part["query"] == query and part["committing"] is not None for part in parts)

    def _is_over(self, query: str) -> bool:
        active = self._view.active_queries()
        return active is not None and query not in active and not self.unpublished(query)

    def storage_waits_s(self) -> dict[str, float]:
        """How long live hosts have been waiting for storage, by location."""
        return self.machines.storage_waits_s()

    def progress(self, query: str, operator: str) -> list[BatchProgress]:
        """The last batches of an operator in the query's current start, oldest first."""
        with self._lock:
            tracked = self._operators.get((query, operator))
        return [] if tracked is None else tracked.progress()

    def verdict(self, operator: str, uid: str) -> str:
        """What the observer of an operator's store chose in its last batch; empty before the first."""
        with self._lock:
            tracked = [one for (_, name), one in self._operators.items() if name == operator]
        batches = [batch for one in tracked if one.uid == uid for batch in one.progress()]
        return batches[-1].verdict if batches else ""

    def lookahead(self, operator: str) -> tuple[Candidates, Choice] | None:
        """Candidates and choice of an operator in its newest batch; None before the first."""
        return self.lookaheads.newest(operator)

    def operators(self, query: str) -> list[str]:
        """Names of the query's operators that have begun a batch."""
        with self._lock:
            return sorted(name for owner_query, name in self._operators if owner_query == query)

    def queries(self) -> list[str]:
        """Ids of the queries that have begun a batch, in that order."""
        with self._lock:
            return list(dict.fromkeys(query for query, _ in self._operators))

    def account(self, query: str, operator: str, since: int) -> OperatorAccount | None:
        """What an observer may read about an operator, with its batches from `since` on."""
        with self._lock:
            tracked = self._operators.get((query, operator))
        return None if tracked is None else tracked.account(since)

    def _operator(self, query: str, name: str) -> TrackedOperator:
        with self._lock:
            tracked = self._operators.get((query, name))
            if tracked is not None:
                return tracked
            tracked = self._operators[query, name] = TrackedOperator(self._view, self._clock, self.leases)
        self._drop_ended()
        return tracked

    def _drop_ended(self) -> None:
        """Bounds the number of ended queries in memory: an application may start queries without end."""
        with self._lock:
            queries = list(dict.fromkeys(query for query, _ in self._operators))
        if len(queries) <= QUERIES_KEPT:
            return
        dropped = ended_beyond(queries, lambda query: self._view.active_run(query) is not None)
        with self._lock:
            self._operators = {
                key: operator for key, operator in self._operators.items() if key[0] not in dropped
            }
            self._counts = {key: count for key, count in self._counts.items() if key[0] not in dropped}
        self.machines.drop(dropped)
        self.pins.drop(dropped)
        self.lookaheads.drop(dropped)

    def _tracked(self, query: str, name: str) -> TrackedOperator:
        with self._lock:
            if (query, name) not in self._operators:
                raise Fenced(f"operator {name} of query {query} has not begun here")
            return self._operators[query, name]
