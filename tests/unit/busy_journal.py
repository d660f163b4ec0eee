"""The records of a busy application, as a driver makes them: three operators, a lost host, slow storage."""

from __future__ import annotations

import random
from dataclasses import dataclass

from progress_rows import START_MS, summary

from headrace.coordinator.progress import total, with_hidden
from headrace.monitor.journal import Journal
from headrace.monitor.records import Record, application, batch, event, query
from headrace.wire.contract import Hidden, Span, Summary
from headrace.wire.state_reads import StateReads

BATCHES, EVERY_MS, PARTITIONS = 120, 1000, 4


@dataclass(frozen=True)
class Shape:
    """An operator, and about what one of its partitions does in a batch."""

    name: str
    work: str
    window: str
    store: str
    reason: str
    rows: int
    results: int
    keys: int
    memory_mb: int
    state_mb: int


OPERATORS = (
    Shape("sessions", "an aggregate of all rows", "sessions with a gap of 30 s", "aur",
          "each session is read when it closes", 249_000, 5_000, 450_000, 84, 348),
    Shape("per-user", "an aggregate", "none", "rmw",
          "each row changes one state row of its key (point update)", 250_000, 100_000, 60_000, 9, 39),
    Shape("orders", "a join", "none", "range",
          "rows are read by event time", 79_000, 8_700, 216_000, 45, 188),
)  # fmt: skip


def busy_journal() -> Journal:
    journal, draw = Journal(), random.Random(7)
    journal.add(application(START_MS, "app-2026-0042", "shop"))
    journal.add(query(START_MS, "q", "r", "payments", "file:/checkpoints/payments"))
    for shape in OPERATORS:
        journal.add(fact(shape))
    for number in range(BATCHES):
        slow = 2.5 if 60 <= number < 66 else 1.0  # of the storage
        for shape in OPERATORS:
            parts = [done(shape, number, part, slow, draw) for part in range(PARTITIONS)]
            at_ms = START_MS + number * EVERY_MS + 950
            journal.add(batch(at_ms, "q", shape.name, total(number, parts)))
    throttled, ended = (START_MS + number * EVERY_MS for number in (61, 90))
    text = "storage throttled: 503 SlowDown, retried for 0.9 s"
    journal.add(event(throttled, "host node-2", "warning", text, "raise the bucket's request rate"))
    text, hint = "the host ended (pid 71) and another took its place (pid 93)", "its batch was repeated"
    journal.add(event(ended, "host node-1", "warning", text, hint))
    hosts = [host("node-1", 93), host("node-2", 72)]
    journal.add({"kind": "hosts", "at_ms": START_MS + BATCHES * EVERY_MS, "hosts": hosts})
    return journal


def host(machine: str, pid: int) -> Record:
    return {
        "machine": machine,
        "pid": pid,
        "memory_limit_bytes": 512 << 20,
        "memory_bytes": 270 << 20,
        "storage_waits_ms": {},
        "partitions": 6,
        "opened": {"q": 6},
    }


def fact(shape: Shape) -> Record:
    return {
        "kind": "operator",
        "at_ms": START_MS,
        "query": "q",
        "operator": shape.name,
        "work": shape.work,
        "keys": ["user"],
        "window": shape.window,
        "emit": "final" if shape.store == "aur" else "changes",
        "store": shape.store,
        "reason": shape.reason,
        "partitions": PARTITIONS,
        "location": "s3://shop-state/payments",
    }


def done(shape: Shape, number: int, partition: int, slow: float, draw: random.Random) -> Summary:
    """What one partition did in one batch, whose commit ended behind the next one."""
    load = 1 + 0.25 * draw.random() + (0.3 if partition == 1 else 0)
    grown = 0.6 + 0.4 * number / BATCHES
    at = START_MS + number * EVERY_MS
    apply_ms = int(190 * load * shape.rows / 250_000)
    steps = [("read", 110), ("apply", apply_ms), ("emit", 45), ("log", 18)]
    spans, began = [], at
    for phase, ms in steps:
        spans.append(Span(phase, began, began + ms))
        began += ms
    seal, upload = int(70 * load), int(230 * load * slow)
    behind = [Span("seal", began, began + seal), Span("upload", began + seal, began + seal + upload)]
    if number % 9 == partition:
        behind.append(Span("compaction", began, began + 420))
    reads = StateReads()
    if shape.store == "rmw":
        behind.append(Span("prefetch", at - int(90 * load), at + 60))
        rows = int(0.04 * shape.rows)
        reads = StateReads(
            wait_ms=18.0 * load,
            looked_up=rows,
            hits=int(0.95 * rows),
            blocks=40,
            bytes=40 << 16,
            lookahead="stage",
            hints=2 * rows,
            fetched=rows,
            in_vain=rows // 50,
        )
    made = summary(
        partition,
        number,
        rows_in=int(shape.rows * load / slow),
        rows_out=int(shape.results * load / slow),
        late_rows=draw.choice([0, 0, 0, 0, 7]),
        keys=int(shape.keys * grown),
        memory_bytes=int(shape.memory_mb * grown) << 20,
        state_bytes=int(shape.state_mb * grown) << 20,
        written_bytes=int(1.3e6 * load),
        read_ms=110.0,
        apply_ms=float(apply_ms),
        finish_ms=45.0,
        log_ms=18.0,
        critical_ms=22.0,
        watermark_ms=at - int(7000 + 1500 * draw.random()),
        store=shape.store,
        segments=6 + number % 9,
        reads=reads,
        spans=tuple(spans),
    )
    return with_hidden(made, Hidden(number, float(seal), float(upload), 4.0, tuple(behind)))
