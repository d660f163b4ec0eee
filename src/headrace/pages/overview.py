"""The page of a query: figures, bottleneck, plots, timeline, operators, errors."""

from __future__ import annotations

from typing import Any

from headrace.monitor.picture.phases import COLOURS
from headrace.monitor.picture.picture import Picture, Query
from headrace.pages import text
from headrace.pages.feed import Feed
from headrace.pages.look import TABLES, page, section, theme
from headrace.pages.plots import Plots, overview
from headrace.pages.series import KEPT, columns, complete, heights, lanes_of, peak, timeline

PERIOD_MS = 1000
WINDOW_MIN_MS = 20_000
SHOWN = 150  # batches in the window of a running query

SECTIONS = (
    section(
        "stack",
        "Batch time",
        "seconds by phase; above the line: waited for, below: hidden behind the next batch",
        "s7 h232",
    )
    + section("rows", "Rows per second", "by operator", "s5 h232")
    + section(
        "gantt",
        "Timeline",
        "the last 20 batches, wall clock; what hangs under a batch's end ran behind the next one",
        "s12 h216",
    )
    + section("memory", "Memory", "MB by operator, dashed: the limit", "s3 h150")
    + section("keys", "Keys", "by operator", "s3 h150")
    + section("late", "Late rows", "per batch", "s3 h150")
    + section("lag", "Watermark lag", "seconds behind the clock", "s3 h150")
    + section("ops", "Operators", "a name leads to its state", "s7", plot=False)
    + section("events", "Errors and warnings", "newest first", "s5", plot=False)
)


class Overview:
    """One viewer's page."""

    def __init__(self, document: Any, feed: Feed) -> None:
        from bokeh.models import Div

        self._feed = feed
        self._wanted = argument(document, "query")
        picture = feed.picture()
        query = picture.query(self._wanted)
        self._query = query.id if query else ""
        self._operators = list(query.operators) if query else []
        self._last = -1
        self._lanes = lanes_of(query)
        self._plots = overview(self._operators, self._lanes)
        style = {"stylesheets": [TABLES], "sizing_mode": "stretch_width", "margin": 0}
        self._head, self._ops, self._events, self._reload = (
            Div(name=name, **style) for name in ("head", "ops", "events", "reload")
        )
        self._update()
        build(document, [self._head, *self._plots.roots, self._ops, self._events], SECTIONS, self._reload)
        document.add_periodic_callback(self._update, PERIOD_MS)

    def _update(self) -> None:
        picture = self._feed.picture()
        query = picture.query(self._wanted)
        if query is not None and self._is_another(query):
            lanes = len(lanes_of(query))
            self._reload.text = (
                f"{query.id} {len(query.operators)} {lanes}"  # its change loads the page again
            )
            return
        _set(self._head, text.head(picture, query, live=self._feed.live))
        if query is None:
            return
        _set(self._ops, text.operators(picture, query))
        _set(self._events, text.events(picture.events))
        self._stream(query)
        _move(self._plots, picture, query, live=self._feed.live)

    def _is_another(self, query: Query) -> bool:
        """Whether the plots were made for another query, other operators or other lanes."""
        made_for = self._query, self._operators, len(self._lanes)
        operators, lanes = list(query.operators), len(lanes_of(query))
        return (query.id, operators, max(lanes, made_for[2])) != made_for

    def _stream(self, query: Query) -> None:
        fresh = [number for number in complete(query) if number > self._last][-KEPT:]
        if fresh:
            self._last = fresh[-1]
            self._plots.source.stream(columns(query, self._operators, fresh), rollover=KEPT)


def _move(plots: Plots, picture: Picture, query: Query, *, live: bool) -> None:
    """Windows, timeline and the line of the limit."""
    at, width = plots.source.data["at"], plots.source.data["width"]
    if len(at):
        first = max(0, len(at) - SHOWN) if live else 0
        end = float(at[-1]) + float(width[-1])
        plots.window.update(start=min(float(at[first]) - float(width[first]), end - WINDOW_MIN_MS), end=end)
    low, high = heights(plots.source.data, SHOWN if live else KEPT)
    plots.stack_range.update(start=low, end=high)
    shown = timeline(query, COLOURS)
    if shown.end_ms and plots.timeline_window.end != shown.end_ms:
        plots.spans.data, plots.bands.data = shown.spans, shown.batches
        plots.timeline_window.update(start=shown.start_ms, end=shown.end_ms)
    limit = sum(host.memory_limit_bytes for host in picture.hosts) / (1 << 20)
    used = peak(plots.source.data, "memory_")
    plots.limit.location = limit or -1
    top = limit * 1.12 if limit and used > 0.1 * limit else max(used * 1.5, 0.1)
    if plots.memory_range.end < used or abs(plots.memory_range.end - top) > 0.3 * top:
        plots.memory_range.end = top


def _set(div: Any, content: str) -> None:
    if div.text != content:
        div.text = content


def argument(document: Any, name: str) -> str:
    """An argument of the page's address; empty when it is missing."""
    request = document.session_context.request if document.session_context else None
    values = request.arguments.get(name, []) if request is not None else []
    return values[0].decode() if values else ""


def build(document: Any, roots: list[Any], sections: str, reload: Any) -> None:
    """Put a page together."""
    from bokeh.models import CustomJS

    reload.js_on_change("text", CustomJS(code="window.location.reload()"))
    reload.visible = False
    for root in (*roots, reload):
        document.add_root(root)
    document.theme = theme()
    document.template = page(sections + "{{ embed(roots.reload) }}")
    document.title = "Headrace"
