"""The parts of the pages that are text: head, bottleneck, tables. Pure: a picture in, HTML out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from headrace.coordinator.progress import BatchProgress
from headrace.monitor.picture.phases import added, hidden_ms
from headrace.monitor.picture.picture import Event, Operator, Picture, Query
from headrace.monitor.picture.signs import batch_ms as time_of
from headrace.monitor.picture.signs import finding, recent_batches, skew_of
from headrace.monitor.picture.words import clock_time, count, duration, size, span
from headrace.pages.look import OPERATOR_COLOURS

RATE_OVER_MS = 10_000
EVENTS_SHOWN = 8


def head(picture: Picture, query: Query | None, *, live: bool) -> str:
    """The line of figures on top, the tabs of queries and the bottleneck."""
    if query is None:
        title = escape(picture.application or "Headrace")
        return f"<div class=head><div class=id><b>{title}</b><div>no batch has ended yet</div></div></div>"
    return (
        f"<div class=head>{_identity(picture, query, live=live)}{''.join(_figures(picture, query))}</div>"
        f"{_tabs(picture, query)}{_limit(picture, query)}"
    )


def _identity(picture: Picture, query: Query, *, live: bool) -> str:
    last = max((batch for op in query.operators.values() for batch in op.batches), default=-1)
    commit = next((op.last.commit for op in query.operators.values() if op.last), "sync")
    parts = [
        f"batch {last:,}" if last >= 0 else "no batch yet",
        f"{commit} commits",
        _plural(len(query.operators), "operator"),
        _plural(len(picture.hosts), "host") if live else "history",
        escape(picture.application_id or query.id[:8]),
    ]
    kinds = {"running": "", "stopped": "s", "failed": "e"}
    state = query.state if live or query.state != "running" else "not watched"
    kind = kinds.get(state, "s")
    if state == "running" and any(host.storage_waits_ms for host in picture.hosts):
        state, kind = "storage waits", "w"
    return (
        f"<div class=id><b>{escape(query.title)}</b><span class='pill {kind}'>{state}</span>"
        f"<div>{' · '.join(parts)}</div></div>"
    )


def _figures(picture: Picture, query: Query) -> list[str]:
    lasts = [op.last for op in query.operators.values() if op.last]
    batches = recent_batches(query, 1)
    waited = batches[-1][1] if batches else {}
    hidden = added(hidden_ms(last) for last in _settled(query))
    took = time_of(query, batches[-1][0], waited) if batches else 0.0
    memory = sum(last.memory_bytes for last in lasts)
    limit = sum(host.memory_limit_bytes for host in picture.hosts)
    marks = [last for last in lasts if last.watermark_ms is not None]
    figures = [
        _figure("rows in", count(rate(picture, query)), "/s"),
        _figure("batch", f"{took / 1000:.2f}", "s"),
        _figure("waited for", f"{sum(waited.values()):.0f}", "ms"),
        _figure("hidden", f"{sum(hidden.values()):.0f}", "ms"),
        _figure("keys", count(sum(last.keys for last in lasts))),
        _figure("memory", f"{memory / limit:.0%}", f"of {size(limit)}")
        if limit
        else _figure("memory", size(memory)),
        _figure("state", size(sum(last.state_bytes for last in lasts))),
    ]
    figures += _hits(lasts)
    if marks:
        figures.append(_figure("watermark lag", *lag_words(marks[0])))
    return [
        *figures,
        _figure("late rows", count(_late(query)), f"in {_plural(_kept(query), 'batch', 'es')}"),
    ]


def _hits(lasts: Sequence[BatchProgress]) -> list[str]:
    """The part of the rows whose state was in memory, and of what was not, the part that was read ahead."""
    rows, missed = sum(one.rows_in for one in lasts), sum(one.reads.looked_up for one in lasts)
    figures = [_figure("cache hits", f"{max(0.0, 1 - missed / rows):.0%}", "of rows")] if rows else []
    hits = sum(one.prefetch_hits + one.reads.hits for one in lasts)
    absent = sum(one.prefetch_hits + one.prefetch_misses + one.reads.looked_up for one in lasts)
    is_ahead = hits or any(one.prefetch_misses or one.reads.lookahead for one in lasts)
    return [*figures, _figure("prefetch hits", f"{hits / absent:.0%}")] if absent and is_ahead else figures


def _settled(query: Query) -> list[BatchProgress]:
    """The newest batch of each operator whose hidden part is known."""
    lasts = []
    for operator in query.operators.values():
        recent = operator.recent(2)
        done = recent if recent and recent[-1].commit == "sync" else recent[:-1]
        lasts += done[-1:]
    return lasts


def lag_s(batch: BatchProgress) -> float | None:
    """By how much the watermark is behind the clock; None without one."""
    if batch.watermark_ms is None or not batch.ended_ms:
        return None
    return max(0.0, (batch.ended_ms - batch.watermark_ms) / 1000)


def lag_words(batch: BatchProgress) -> tuple[str, str]:
    lag = lag_s(batch) or 0.0
    return (f"{lag:.1f}", "s") if lag < 600 else (span(lag), "")


def rate(picture: Picture, query: Query) -> float:
    """Rows per second over the last ten seconds; over the last ones with batches, when the query ended."""
    end = (
        picture.at_ms
        if query.ended_ms is None
        else max((op.last.ended_ms for op in query.operators.values() if op.last), default=0)
    )
    rows = 0
    for operator in query.operators.values():
        rows += sum(b.rows_in for b in operator.recent(100) if end - RATE_OVER_MS < b.ended_ms <= end)
    return rows / (RATE_OVER_MS / 1000)


def _late(query: Query) -> int:
    return sum(batch.late_rows for op in query.operators.values() for batch in op.batches.values())


def _kept(query: Query) -> int:
    return max((len(op.batches) for op in query.operators.values()), default=0)


def _figure(name: str, value: str, unit: str = "") -> str:
    return f"<div class=k><i>{name}</i><b>{value}</b><u>{unit}</u></div>"


def _plural(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def _tabs(picture: Picture, query: Query) -> str:
    if len(picture.queries) < 2:
        return ""
    links = "".join(
        f"<a href='./?query={quote(one.id)}' class='{'on' if one.id == query.id else ''}'>"
        f"{escape(picture.label(one.id))}</a>"
        for one in picture.queries.values()
    )
    return f"<div class=tabs>{links}</div>"


def _limit(picture: Picture, query: Query) -> str:
    result = finding(picture, query)
    kind = {"error": "bad", "storage": "bad", "recovery": "slow", "none": "fine", "start": "fine"}.get(
        result.limit, ""
    )
    return (
        f"<div class='limit {kind}' data-limit='{result.limit}'>{escape(result.sentence)} "
        f"<span>{escape(result.advice)}</span></div>"
    )


def operators(picture: Picture, query: Query) -> str:
    """The table of a query's operators; names lead to their pages."""
    limit = sum(host.memory_limit_bytes for host in picture.hosts)
    names = ("parts", "in /s", "out /s", "keys", "memory", "on storage", "written", "apply", "skew", "late")
    rows = "".join(_operator(query, at, op, limit) for at, op in enumerate(query.operators.values()))
    titles = "<th class=l>operator<th class=l>store" + "".join(f"<th>{name}" for name in names)
    return f"<table><tr>{titles}</tr>{rows}</table>"


def _operator(query: Query, at: int, operator: Operator, limit: int) -> str:
    last, colour = operator.last, OPERATOR_COLOURS[at % len(OPERATOR_COLOURS)]
    link = f"operator?query={quote(query.id)}&operator={quote(operator.name)}"
    swatch = f"<span class=sw style='background:{colour}'></span>"
    name = f"<td class=l>{swatch}<a href='{link}'>{escape(operator.name)}</a>"
    if last is None:
        return f"<tr>{name}<td class=l>{escape(operator.store)}<td colspan=10 class=l>no batch yet</tr>"
    seconds = max(0.001, time_of(query, last.batch, {}) / 1000)
    share = 100 * last.memory_bytes / limit if limit else 0
    bar = f"<span class=bar><s style='width:{min(100, share):.0f}%;background:{colour}'></s></span>"
    cells = (
        str(last.partitions),
        count(last.rows_in / seconds),
        count(last.rows_out / seconds),
        count(last.keys),
        bar + size(last.memory_bytes),
        size(last.state_bytes),
        size(last.written_bytes),
        duration(last.apply_ms),
        f"{skew_of(last)[0]:.1f}",
        count(sum(batch.late_rows for batch in operator.batches.values())),
    )
    tag = f"<td class=l><span class=tag>{escape(operator.store)}</span>"
    return f"<tr>{name}{tag}{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def events(shown: Sequence[Event]) -> str:
    """Errors, warnings and notes, newest first."""
    if not shown:
        return "<div class=none>none</div>"
    rows = "".join(
        f"<tr><td class=l>{clock_time(one.at_ms)}"
        f"<td class=l><span class='tag {one.level}'>{escape(one.where)}</span>"
        f"<td class=msg>{escape(one.message)}<br><span class=hint>{escape(one.hint)}</span></tr>"
        for one in sorted(shown, key=lambda one: one.at_ms)[-EVENTS_SHOWN:][::-1]
    )
    return f"<table>{rows}</table>"
