"""The picture of an application in a terminal. Pure: a picture in, what rich prints out."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.monitor.picture.phases import COLOURS, Split, added, hidden_ms, waited_ms
from headrace.monitor.picture.picture import Operator, Picture, Query
from headrace.monitor.picture.signs import batch_ms, finding
from headrace.monitor.picture.words import bars, clock_time, count, duration, size
from headrace.pages.text import lag_words, rate

RECENT, BATCHES, EVENTS, NARROW = 40, 8, 4, 100
PHASES = ("read", "apply", "emit", "log", "wait", "seal", "upload", "compaction")


def screen(picture: Picture, width: int, *, live: bool) -> Group:
    """All queries, one under another."""
    if not picture.queries:
        return Group(Text.assemble((picture.application or "Headrace", "bold"), "  no batch has ended yet"))
    parts: list[Any] = []
    for query in picture.queries.values():
        parts += [*_query(picture, query, width, live=live), Text("")]
    return Group(*parts, *_events(picture))


def _query(picture: Picture, query: Query, width: int, *, live: bool) -> list[Any]:
    bottleneck = finding(picture, query)
    legend = Text("  ").join(Text(f"█ {phase}", style=COLOURS[phase]) for phase in PHASES)
    sentence = Text.assemble((bottleneck.sentence, "bold"), ("  " + bottleneck.advice, "dim"))
    return [
        _title(picture, query, live=live),
        sentence,
        Text(""),
        _operators(picture, query, width),
        Text(""),
        legend,
        _batches(query, width),
    ]


def _title(picture: Picture, query: Query, *, live: bool) -> Text:
    colours = {"running": "green", "failed": "red", "stopped": "yellow"}
    state = query.state if live or query.state != "running" else "history"
    numbers = [number for operator in query.operators.values() for number in operator.batches]
    last = max(numbers, default=0)
    marks = [op.last for op in query.operators.values() if op.last and op.last.watermark_ms is not None]
    parts = [
        f"  batch {last}",
        f"  {batch_ms(query, last, {}) / 1000:.2f} s" if numbers else "",
        f"  {count(rate(picture, query))} rows/s",
        f"  watermark lag {' '.join(lag_words(marks[0]))}" if marks else "",
        "  ",
    ]
    return Text.assemble((query.title, "bold"), *parts, (state, colours.get(state, "dim")))


def _operators(picture: Picture, query: Query, width: int) -> Table:
    table = Table(box=None, expand=True, header_style="dim", pad_edge=False)
    wide = width >= NARROW
    named = [("operator", "left"), ("store", "left"), ("in /s", "right")]
    named += [(f"last {RECENT} batches", "left")] if wide else []
    named += [("keys", "right"), ("memory", "left"), ("", "right"), ("apply", "right"), ("late", "right")]
    for name, side in named:
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    limit = sum(host.memory_limit_bytes for host in picture.hosts)
    for operator in query.operators.values():
        table.add_row(*_operator(query, operator, limit, wide=wide))
    return table


def _operator(query: Query, operator: Operator, limit: int, *, wide: bool) -> list[Any]:
    last = operator.last
    if last is None:
        return [Text(operator.name, style="bold"), operator.store, "starting"]
    rates = [batch.rows_in / batch_ms(query, batch.batch, {}) * 1000 for batch in operator.recent(RECENT)]
    memory = ProgressBar(total=limit or 1, completed=last.memory_bytes, width=14, complete_style="#4aa588")
    return [
        Text(operator.name, style="bold"),
        operator.store,
        count(rates[-1]),
        *([Text(bars(rates), style=COLOURS["apply"])] if wide else []),
        count(last.keys),
        memory,
        size(last.memory_bytes),
        duration(last.apply_ms),
        count(sum(batch.late_rows for batch in operator.batches.values())),
    ]


def _batches(query: Query, width: int) -> Table:
    """The last batches as bars: what was waited for, what was hidden."""
    splits: dict[int, tuple[list[Split], list[Split]]] = {}
    for operator in query.operators.values():
        for batch in operator.recent(BATCHES):
            waited, hidden = splits.setdefault(batch.batch, ([], []))
            waited.append(waited_ms(batch))
            hidden.append(hidden_ms(batch))
    shown = sorted(splits)[-BATCHES:]
    made = {number: (added(splits[number][0]), added(splits[number][1])) for number in shown}
    most = max((sum(split.values()) for pair in made.values() for split in pair), default=0.0) or 1.0
    cells = max(10, (width - 20) // 2)
    table = Table(box=None, expand=True, header_style="dim", pad_edge=False)
    table.add_column("batch", width=8)
    table.add_column("waited for", ratio=1)
    table.add_column("hidden", ratio=1)
    table.add_column("s", justify="right", width=7)
    for number, (up, down) in made.items():
        took = f"{batch_ms(query, number, {}) / 1000:.2f}"
        table.add_row(str(number), _bar(up, cells / most), _bar(down, cells / most), took)
    return table


def _bar(split: Split, per_ms: float) -> Text:
    bar = Text(no_wrap=True, overflow="crop")
    for phase in ("open", *PHASES):
        bar.append("█" * round(split.get(phase, 0.0) * per_ms), style=COLOURS[phase])
    return bar


def _events(picture: Picture) -> list[Text]:
    colours = {"error": "red", "warning": "yellow"}
    return [
        Text.assemble(
            (f"{clock_time(event.at_ms)}  ", "dim"),
            (f"{event.where}  ", colours.get(event.level, "dim")),
            event.message,
            (f"  {event.hint}", "dim"),
        )
        for event in picture.events[-EVENTS:][::-1]
    ]
