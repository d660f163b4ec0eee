"""Prometheus metrics of an application, driver and hosts, on loopback. Names and units: docs/metrics.md.

Threads: prometheus_client serves from threads of its own; a lock guards what they share.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from headrace.errors import SettingError
from headrace.monitor.journal import Journal
from headrace.monitor.metrics.totals import COUNTED, Totals
from headrace.monitor.picture.phases import PHASES
from headrace.monitor.picture.picture import Operator, Picture, Query

OPERATOR = ("query", "operator")

# Name without the prefix, help, attribute of the last batch.
GAUGES = (
    ("keys", "Rows of state after the last batch.", "keys"),
    ("memory_bytes", "Memory that an operator's state takes.", "memory_bytes"),
    ("state_bytes", "Bytes of the segments that the newest version names.", "state_bytes"),
    ("segments", "Files that the newest version names.", "segments"),
    ("partitions", "State partitions of an operator.", "partitions"),
)
COUNTERS = {
    "rows_in": ("input_rows", "Rows that came in."),
    "rows_out": ("output_rows", "Rows that went out."),
    "late_rows": ("late_rows", "Rows that came after their window had closed."),
    "written_bytes": ("written_bytes", "Bytes written to segments and log."),
    "prefetch_hits": ("prefetch_hits", "Sessions that ended with all rows read ahead."),
    "prefetch_misses": ("prefetch_misses", "Sessions that ended and were read from disk then."),
    "prefetched": ("prefetched", "Sessions read ahead."),
    "prefetch_in_vain": ("prefetch_in_vain", "Sessions read ahead and not used."),
}
READS = {
    "looked_up": ("state_lookups", "Keys that memory did not have."),
    "hits": ("state_lookup_hits", "Of these, keys that were read ahead of their rows."),
    "blocks": ("state_reads", "Reads of state while rows waited."),
    "bytes": ("state_read_bytes", "Bytes of these reads."),
}


class ApplicationCollector:
    """A prometheus_client collector over the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._last = 0
        self._picture, self._totals = Picture(), Totals()
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Take what is new; also without a scrape, so that no batch leaves the journal uncounted."""
        with self._lock:
            self._last, records = self._journal.since(self._last)
            self._picture.take(records)
            self._totals.take(records)

    def collect(self) -> Iterator[Any]:
        self.follow()
        with self._lock:
            yield from [
                *self._gauges(),
                *self._counters(),
                *self._phases(),
                *self._reads(),
                *self._hosts(),
                *self._queries(),
            ]

    def _operators(self) -> Iterator[tuple[Query, Operator]]:
        for query in self._picture.queries.values():
            for operator in query.operators.values():
                if operator.last is not None and query.ended_ms is None:
                    yield query, operator

    def _gauges(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        operators = list(self._operators())
        for name, text, attribute in GAUGES:
            family = GaugeMetricFamily(f"headrace_operator_{name}", text, labels=OPERATOR)
            for query, operator in operators:
                family.add_metric(
                    (self._picture.label(query.id), operator.name), getattr(operator.last, attribute)
                )
            yield family
        mark = GaugeMetricFamily(
            "headrace_operator_watermark_timestamp_seconds", "The watermark, since 1970.", labels=OPERATOR
        )
        last = GaugeMetricFamily(
            "headrace_operator_last_batch_timestamp_seconds",
            "When the last batch was acknowledged, since 1970.",
            labels=OPERATOR,
        )
        for query, operator in operators:
            assert operator.last is not None
            last.add_metric((self._picture.label(query.id), operator.name), operator.last.ended_ms / 1000)
            if operator.last.watermark_ms is not None:
                mark.add_metric(
                    (self._picture.label(query.id), operator.name), operator.last.watermark_ms / 1000
                )
        yield from (mark, last)

    def _counters(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        batches = CounterMetricFamily("headrace_operator_batches", "Batches.", labels=OPERATOR)
        seconds = CounterMetricFamily(
            "headrace_operator_batch_seconds", "Time of all batches.", labels=OPERATOR
        )
        families = {
            name: CounterMetricFamily(
                f"headrace_operator_{COUNTERS[name][0]}", COUNTERS[name][1], labels=OPERATOR
            )
            for name in COUNTED
        }
        for (query, operator), totals in self._totals.operators.items():
            labels = (self._picture.label(query), operator)
            batches.add_metric(labels, totals.batches)
            seconds.add_metric(labels, totals.seconds)
            for name, value in totals.counts.items():
                families[name].add_metric(labels, value)
        events = CounterMetricFamily("headrace_events", "Errors and warnings.", labels=("level",))
        for level, number in self._totals.events.items():
            events.add_metric((level,), number)
        yield from (batches, seconds, *families.values(), events)

    def _phases(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "headrace_operator_phase_seconds",
            "Time of the phases of all batches; hidden ones ran behind the next batch.",
            labels=(*OPERATOR, "phase", "hidden"),
        )
        for (query, operator), totals in self._totals.operators.items():
            for hidden, split in (("false", totals.waited_s), ("true", totals.hidden_s)):
                for phase in PHASES:
                    if phase in split:
                        family.add_metric(
                            (self._picture.label(query), operator, phase, hidden), split[phase]
                        )
        yield family

    def _reads(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        waits = CounterMetricFamily(
            "headrace_operator_state_wait_seconds", "Time in which rows waited for state.", labels=OPERATOR
        )
        families = {
            name: CounterMetricFamily(f"headrace_operator_{short}", text, labels=OPERATOR)
            for name, (short, text) in READS.items()
        }
        for (query, operator), totals in self._totals.operators.items():
            labels = (self._picture.label(query), operator)
            waits.add_metric(labels, totals.state_wait_s)
            for name, value in totals.reads.items():
                families[name].add_metric(labels, value)
        yield from (waits, *families.values())

    def _hosts(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        limit = GaugeMetricFamily("headrace_host_memory_limit_bytes", "Limit of a host.", labels=("host",))
        used = GaugeMetricFamily(
            "headrace_host_memory_bytes", "Memory of a host's state.", labels=("host",)
        )
        parts = GaugeMetricFamily("headrace_host_partitions", "Partitions of a host.", labels=("host",))
        waits = GaugeMetricFamily(
            "headrace_host_storage_wait_seconds",
            "For how long a host has been waiting for a location.",
            labels=("host", "location"),
        )
        for host in self._picture.hosts:
            limit.add_metric((host.machine,), host.memory_limit_bytes)
            used.add_metric((host.machine,), host.memory_bytes)
            parts.add_metric((host.machine,), host.partitions)
            for location, ms in host.storage_waits_ms.items():
                waits.add_metric((host.machine, location), ms / 1000)
        yield from (limit, used, parts, waits)

    def _queries(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily("headrace_query_running", "1 while a query runs.", labels=("query",))
        for query in self._picture.queries.values():
            family.add_metric((self._picture.label(query.id),), 1 if query.ended_ms is None else 0)
        yield family


class MetricsServer:
    """Serves the metrics of a journal at a port of loopback."""

    def __init__(self, port: int, journal: Journal) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise SettingError(
                "spark.headrace.metrics.port needs the package prometheus_client",
                hint="pip install 'headrace[view]', or take the setting away",
            ) from None
        registry = CollectorRegistry()
        self._collector = ApplicationCollector(journal)
        registry.register(self._collector)
        try:
            self._server, self._thread = start_http_server(port, addr="127.0.0.1", registry=registry)
        except OSError as error:
            raise SettingError(
                f"spark.headrace.metrics.port={port}: {error}",
                hint="use another port, or 0 for any free one",
            ) from None
        self.port: int = self._server.server_port

    def follow(self) -> None:
        """Count what is new."""
        self._collector.follow()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
