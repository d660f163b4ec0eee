"""The signs of a query that its picture shows, for the sentence that names the bottleneck. Pure."""

from __future__ import annotations

from headrace.coordinator.progress import BatchProgress
from headrace.monitor.picture.bottleneck import Finding, Signs, bottleneck
from headrace.monitor.picture.phases import Split, added, waited_ms
from headrace.monitor.picture.picture import Operator, Picture, Query

RECENT = 20
PAUSE_MS = 5_000


def finding(picture: Picture, query: Query) -> Finding:
    """What limits a query."""
    return bottleneck(signs_of(picture, query))


def signs_of(picture: Picture, query: Query) -> Signs:
    """The signs of the last batches."""
    running = query.ended_ms is None
    waits = [host.storage_waits_ms for host in picture.hosts] if running else []
    base = Signs(
        error=query.error,
        storage_waits_s={at: ms / 1000 for wait in waits for at, ms in wait.items()},
        recovering=recovering(picture, query),
    )
    batches = recent_batches(query)
    if not batches:
        return base
    slowest = max(query.operators.values(), key=_busy_ms)
    skew, fullest = skew_of(slowest.last)
    limit = sum(host.memory_limit_bytes for host in picture.hosts)
    state = sum(operator.last.state_bytes for operator in query.operators.values() if operator.last)
    total = added(waited for _, waited in batches)
    return Signs(
        batch_ms=sum(batch_ms(query, number, waited) for number, waited in batches) / len(batches),
        waited_ms={phase: ms / len(batches) for phase, ms in total.items()},
        idle=idle_share(query, [number for number, _ in batches]),
        operator=slowest.name,
        store=slowest.store,
        commit=slowest.last.commit if slowest.last else "sync",
        skew=skew,
        fullest=fullest,
        state_to_memory=state / limit if limit else 0.0,
        storage_waits_s=base.storage_waits_s,
        recovering=base.recovering,
        error=base.error,
    )


def recent_batches(query: Query, number: int = RECENT) -> list[tuple[int, Split]]:
    """The last batches with what they waited for, over all operators."""
    by_batch: dict[int, list[Split]] = {}
    for operator in query.operators.values():
        for batch in operator.recent(number):
            by_batch.setdefault(batch.batch, []).append(waited_ms(batch))
    return [(batch, added(splits)) for batch, splits in sorted(by_batch.items())][-number:]


def batch_ms(query: Query, batch: int, waited: Split) -> float:
    """How long a batch took: as Spark measured it, or since the end of the batch before."""
    trigger = query.triggers.get(batch)
    mine = [operator.batches[batch] for operator in query.operators.values() if batch in operator.batches]
    spanned = max((one.ended_ms for one in mine), default=0) - min(
        (one.started_ms for one in mine), default=0
    )
    return float(max(trigger.total_ms if trigger else _since_before(query, batch, mine), spanned, 1))


def _since_before(query: Query, batch: int, mine: list[BatchProgress]) -> int:
    """Milliseconds from the end of the batch before to a batch's own end; 0 after a long pause."""
    known = (operator.batches.get(batch - 1) for operator in query.operators.values())
    before = max((one.ended_ms for one in known if one is not None), default=0)
    elapsed = max((one.ended_ms for one in mine), default=0) - before
    return elapsed if before and elapsed < PAUSE_MS else 0


def idle_share(query: Query, batches: list[int]) -> float:
    """The share of the time between the first and the last batch in which none ran."""
    triggers = [query.triggers[number] for number in batches if number in query.triggers]
    numbers = [trigger.batch for trigger in triggers]
    if len(triggers) < 2 or numbers != list(range(numbers[0], numbers[-1] + 1)):
        return 0.0  # with gaps nothing is known
    elapsed = triggers[-1].started_ms - triggers[0].started_ms
    busy = sum(trigger.total_ms for trigger in triggers[:-1])
    return max(0.0, 1 - busy / elapsed) if elapsed > 0 else 0.0


def skew_of(batch: BatchProgress | None) -> tuple[float, int]:
    """Rows of the fullest partition over the mean, and which one it is."""
    if batch is None or not batch.parts or not batch.rows_in:
        return 1.0, 0
    fullest = max(batch.parts, key=lambda part: part.rows_in)
    return fullest.rows_in * batch.partitions / batch.rows_in, fullest.partition


def recovering(picture: Picture, query: Query) -> tuple[int, int] | None:
    """Partitions that are open and all of them, while a query that has state opens them; else None."""
    expected = sum(int(operator.facts.get("partitions", 0)) for operator in query.operators.values())
    opened = sum(host.opened.get(query.id, 0) for host in picture.hosts)
    if query.ended_ms is not None or not picture.hosts or not expected:
        return None
    began = any(operator.batches for operator in query.operators.values())
    return (opened, expected) if began and opened < expected else None


def _busy_ms(operator: Operator) -> float:
    return sum(batch.apply_ms + batch.finish_ms for batch in operator.recent(RECENT))
