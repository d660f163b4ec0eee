"""The page of an operator: what it is, its store and why, sizes, partitions, and its state by key."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote

from headrace.coordinator.progress import BatchProgress
from headrace.monitor.picture.picture import Operator, Query
from headrace.monitor.picture.signs import skew_of
from headrace.monitor.picture.words import count, duration, size
from headrace.pages import text
from headrace.pages.feed import Feed
from headrace.pages.look import SOFT, TABLES, section
from headrace.pages.overview import PERIOD_MS, argument, build
from headrace.pages.plots import stack, time_figure
from headrace.pages.series import KEPT, columns, complete, heights, names
from headrace.pages.state import ROWS_SHOWN, browse

SECTIONS = (
    section("facts", "Operator", "what it is and where its state is", "s5", plot=False)
    + section("stack", "Batch time", "seconds by phase; below the line: hidden", "s7 h232")
    + section("parts", "Partitions", "the last batch", "s7", plot=False)
    + section("sizes", "State", "MB: in memory and on storage", "s5 h232")
    + section("find", "State by key", "as the last published version has it", "s12", plot=False)
)


class OperatorPage:
    """One viewer's page of one operator."""

    def __init__(self, document: Any, feed: Feed) -> None:
        from bokeh.layouts import column, row
        from bokeh.models import Button, ColumnDataSource, Div, Range1d, TextInput

        self._feed = feed
        self._ids = argument(document, "query"), argument(document, "operator")
        self._last = -1
        self._window = Range1d(0, 1)
        self._source = ColumnDataSource({name: [] for name in names([""])}, name="batches")
        self._stack = stack(self._source, self._window)
        self._sizes = ColumnDataSource({"at": [], "memory": [], "storage": []})
        style = {"stylesheets": [TABLES], "sizing_mode": "stretch_width", "margin": 0}
        self._head, self._facts, self._parts, self._rows, reload = (
            Div(name=name, **style) for name in ("head", "facts", "parts", "rows", "reload")
        )
        self._key = TextInput(
            placeholder="key, or part of it; empty shows the first rows", name="key", width=360
        )
        look = Button(label="look up", button_type="default", width=90, name="look")
        look.on_click(self._look)
        self._key.on_change("value", lambda attr, old, new: self._look())
        find = column(row(self._key, look), self._rows, name="find", sizing_mode="stretch_width")
        self._update()
        roots = [self._head, self._facts, self._stack, self._parts]
        build(document, [*roots, self._sizes_plot(), find], SECTIONS, reload)
        document.add_periodic_callback(self._update, PERIOD_MS)

    def _sizes_plot(self) -> Any:
        plot = time_figure("sizes", self._window, ticks=4)
        for name, colour in (("memory", "#3b7dd8"), ("storage", "#5aa56a")):
            plot.line("at", name, color=colour, line_width=1.8, source=self._sizes, legend_label=name)
        plot.legend.location = "top_left"
        plot.legend.label_text_color = SOFT
        return plot

    def _update(self) -> None:
        chosen = self._chosen()
        if chosen is None:
            self._head.text = "<div class=head><div class=id><b>no such operator</b></div></div>"
            return
        query, operator = chosen
        last = operator.last
        self._head.text = _head(query, operator)
        self._facts.text = facts(operator)
        self._parts.text = partitions(last) if last else "<div class=none>no batch yet</div>"
        fresh = [number for number in complete(query) if number > self._last][-KEPT:]
        batches = [operator.batches[number] for number in fresh if number in operator.batches]
        if batches:
            self._last = fresh[-1]
            one = Query(query.id, operators={operator.name: operator}, triggers=query.triggers)
            self._source.stream(columns(one, [operator.name], fresh), rollover=KEPT)
            self._sizes.stream(sizes(batches), rollover=KEPT)
            at = self._source.data["at"]
            low, high = heights(self._source.data, 150)
            self._stack.y_range.update(start=low, end=high)
            self._window.update(start=float(at[max(0, len(at) - 150)]) - 1000, end=float(at[-1]) + 1000)

    def _chosen(self) -> tuple[Query, Operator] | None:
        query = self._feed.picture().query(self._ids[0])
        operator = query.operators.get(self._ids[1]) if query else None
        return None if query is None or operator is None else (query, operator)

    def _look(self) -> None:
        chosen = self._chosen()
        if chosen is not None:
            self._rows.text = browse(
                chosen[0].checkpoint, chosen[1].name, self._key.value.strip(), ROWS_SHOWN
            )


def _head(query: Query, operator: Operator) -> str:
    last = operator.last
    figures = ""
    if last is not None:
        figures = "".join(
            f"<div class=k><i>{name}</i><b>{value}</b></div>"
            for name, value in (
                ("keys", count(last.keys)),
                ("in memory", size(last.memory_bytes)),
                ("on storage", size(last.state_bytes)),
                ("segments", str(last.segments)),
                ("skew", f"{skew_of(last)[0]:.2f}"),
                ("apply", duration(last.apply_ms)),
            )
        )
    return (
        f"<div class=head><div class=id><b>{escape(operator.name)}</b>"
        f"<span class='pill s'>{escape(operator.store)}</span>"
        f"<div><a href='./?query={quote(query.id)}'>← {escape(query.title)}</a></div></div>{figures}</div>"
    )


def facts(operator: Operator) -> str:
    """What an operator is, as a list."""
    known, last = operator.facts, operator.last
    rows = [
        ("work", known.get("work", "")),
        ("keys", ", ".join(known.get("keys", ())) or "none: one group"),
        ("window", known.get("window", "")),
        ("emits", known.get("emit", "")),
        ("store", operator.store),
        ("why", known.get("reason", "")),
        ("partitions", known.get("partitions", "")),
        ("location", known.get("location", "")),
    ]
    if last is not None:
        rows += [
            ("logical size", f"{count(last.keys)} keys, {size(last.memory_bytes)} of them in memory"),
            (
                "physical size",
                f"{size(last.state_bytes)} in {last.segments} segments of version {last.batch}",
            ),
        ]
    if last is not None:
        rows += _reads(last)
    if last is not None and last.watermark_ms is not None:
        rows.append(("watermark lag", " ".join(text.lag_words(last))))
    return "<dl>" + "".join(f"<dt>{name}<dd>{escape(str(value))}" for name, value in rows) + "</dl>"


def _reads(last: BatchProgress) -> list[tuple[str, str]]:
    """How the last batch came by state that was not in memory."""
    reads = last.reads
    rows = [("cache misses", f"{count(reads.looked_up)} keys, {count(reads.hits)} of them read ahead")]
    if reads.looked_up:
        waits = f"{duration(reads.wait_ms)} in {count(reads.blocks)} reads of {size(reads.bytes)}"
        rows.append(("waits for state", waits))
    if reads.lookahead:
        used = max(0, reads.fetched - reads.in_vain)
        rows.append(
            (
                "read ahead",
                f"{count(used)} keys by hints of {reads.lookahead}, {count(reads.in_vain)} unused",
            )
        )
    if reads.cached_bytes or reads.fetched_bytes:
        local, remote = size(reads.cached_bytes), size(reads.fetched_bytes)
        rows.append(("disk cache", f"{local} local, {remote} fetched in {count(reads.requests)} requests"))
    return rows


def partitions(batch: BatchProgress) -> str:
    """The table of partitions, with their part of the rows."""
    most = max((part.rows_in for part in batch.parts), default=0) or 1
    rows = "".join(
        f"<tr><td>{part.partition}<td class=l><span class=tag>{escape(part.store)}</span>"
        f"<td><span class=bar><s style='width:{100 * part.rows_in / most:.0f}%;background:#3b7dd8'></s>"
        f"</span>"
        f"{part.rows_in:,}<td>{part.keys:,}<td>{size(part.memory_bytes)}<td>{size(part.state_bytes)}"
        f"<td>{part.segments}<td>{duration(part.apply_ms)}</tr>"
        for part in batch.parts
    )
    skew, fullest = skew_of(batch)
    note = f"the fullest, partition {fullest}, got {skew:.2f} times the mean rows"
    if len(batch.parts) < batch.partitions:
        note += f"; the {len(batch.parts)} with most rows of {batch.partitions} are shown"
    titles = (
        "<th>partition<th class=l>store<th>rows in<th>keys<th>memory<th>on storage<th>segments<th>apply"
    )
    return f"<table><tr>{titles}</tr>{rows}</table><div class=none>{note}</div>"


def sizes(batches: list[BatchProgress]) -> dict[str, list[float]]:
    """Bytes of state over time, in MB."""
    return {
        "at": [float(batch.ended_ms) for batch in batches],
        "memory": [batch.memory_bytes / (1 << 20) for batch in batches],
        "storage": [batch.state_bytes / (1 << 20) for batch in batches],
    }
