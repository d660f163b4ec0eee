"""The plots of the pages, made once per viewer; data flows into their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.monitor.picture.phases import COLOURS
from headrace.pages.look import FONT, INK, OPERATOR_COLOURS, SOFT
from headrace.pages.series import DOWN, UP, names

_SI = "const a=Math.abs(tick), r=v=>+v.toPrecision(3);"
_SI += " return a>=1e9?r(tick/1e9)+'G':a>=1e6?r(tick/1e6)+'M':a>=1e3?r(tick/1e3)+'K':''+r(tick)"
LIMIT_COLOUR = "#c0392b"


@dataclass
class Plots:
    """The sources and ranges that updates change."""

    source: Any
    window: Any  # the shared range of times
    spans: Any
    bands: Any
    timeline_window: Any
    stack_range: Any
    memory_range: Any
    limit: Any
    roots: list[Any]


def time_figure(name: str, window: Any, *, zero: bool = True, ticks: int = 6) -> Any:
    """An empty plot over time."""
    from bokeh.models import DatetimeTickFormatter
    from bokeh.plotting import figure

    plot = figure(name=name, x_axis_type="datetime", x_range=window, sizing_mode="stretch_both", tools="")
    clock = "%H:%M:%S"
    plot.xaxis.formatter = DatetimeTickFormatter(
        milliseconds=clock, seconds=clock, minsec=clock, minutes="%H:%M", hourmin="%H:%M", hours="%H:%M"
    )
    plot.xgrid.visible = False
    plot.xaxis.ticker.desired_num_ticks, plot.yaxis.ticker.desired_num_ticks = ticks, 4
    plot.toolbar.logo = None
    if zero:
        plot.y_range.start = 0
    return plot


def overview(operators: Sequence[str], lanes: Sequence[str]) -> Plots:
    """All plots of a query's page."""
    from bokeh.models import ColumnDataSource, Range1d

    source = ColumnDataSource({name: [] for name in names(operators)}, name="batches")
    window, timeline_window = Range1d(0, 1), Range1d(0, 1)
    memory_range, memory, limit = _memory(source, window, operators)
    spans, bands, gantt = _timeline(timeline_window, lanes)
    stacked = stack(source, window)
    roots = [
        stacked,
        _lines("rows", source, window, operators, legend=True),
        gantt,
        memory,
        _lines("keys", source, window, operators, ticks=3),
        _late(source, window, operators),
        _lag(source, window),
    ]
    return Plots(source, window, spans, bands, timeline_window, stacked.y_range, memory_range, limit, roots)


def stack(source: Any, window: Any) -> Any:
    """The time of batches by phase: waited for above the line, hidden below."""
    from bokeh.models import CustomJSTickFormatter, HoverTool, Legend, LegendItem, Range1d, Span

    plot = time_figure("stack", window, zero=False)
    plot.y_range = Range1d(-1, 1)
    common = {"x": "at", "width": "width", "line_color": None, "source": source}
    up = plot.vbar_stack([f"up_{p}" for p in UP], color=[COLOURS[p] for p in UP], **common)
    down = plot.vbar_stack(
        [f"down_{p}" for p in DOWN], color=[COLOURS[p] for p in DOWN], fill_alpha=0.75, **common
    )
    plot.yaxis.formatter = CustomJSTickFormatter(code="return Math.abs(tick).toPrecision(2)*1+''")
    plot.add_layout(Span(location=0, dimension="width", line_color=INK, line_width=1))
    bars = {**dict(zip(UP, up, strict=True)), **dict(zip(DOWN, down, strict=True))}
    plot.add_layout(
        Legend(items=[LegendItem(label=p, renderers=[bar]) for p, bar in bars.items()]), "above"
    )
    lines = [("batch", "@batch"), *((p, f"@up_{p}{{0.000}} s") for p in UP)]
    lines += [(f"{p}, hidden", f"@down_{p}{{0.000}} s") for p in DOWN]
    hover = HoverTool(renderers=[up[2]], tooltips=lines, mode="vline", point_policy="follow_mouse")
    plot.add_tools(hover)
    return plot


def _lines(
    name: str, source: Any, window: Any, operators: Sequence[str], *, ticks: int = 6, legend: bool = False
) -> Any:
    from bokeh.models import CustomJSTickFormatter, Legend, LegendItem

    plot = time_figure(name, window, ticks=ticks)
    plot.yaxis.formatter = CustomJSTickFormatter(code=_SI)
    drawn = [
        plot.line("at", f"{name}_{at}", color=_colour(at), line_width=1.6, source=source)
        for at in range(len(operators))
    ]
    if legend:
        items = [LegendItem(label=operators[at], renderers=[line]) for at, line in enumerate(drawn)]
        plot.add_layout(Legend(items=items), "above")
    return plot


def _memory(source: Any, window: Any, operators: Sequence[str]) -> tuple[Any, Any, Any]:
    from bokeh.models import CustomJSTickFormatter, Range1d, Span

    plot = time_figure("memory", window, ticks=3)
    plot.varea_stack(
        [f"memory_{at}" for at in range(len(operators))],
        x="at",
        color=[_colour(at) for at in range(len(operators))],
        alpha=0.75,
        source=source,
    )
    limit = Span(
        location=-1, dimension="width", line_color=LIMIT_COLOUR, line_dash="dashed", line_width=1.2
    )
    plot.add_layout(limit)
    plot.y_range = Range1d(0, 1)
    plot.yaxis.formatter = CustomJSTickFormatter(code=_SI)
    return plot.y_range, plot, limit


def _late(source: Any, window: Any, operators: Sequence[str]) -> Any:
    plot = time_figure("late", window, ticks=3)
    places = range(len(operators))
    plot.vbar_stack(
        [f"late_{at}" for at in places],
        x="at",
        width="width",
        color=[_colour(at) for at in places],
        line_color=None,
        source=source,
    )
    return plot


def _lag(source: Any, window: Any) -> Any:
    from bokeh.models import CustomJSTickFormatter

    plot, colour = time_figure("lag", window, ticks=3), "#7a5ea8"
    plot.line("at", "lag", color=colour, line_width=1.6, source=source)
    plot.varea(x="at", y1=0, y2="lag", color=colour, alpha=0.12, source=source)
    plot.yaxis.formatter = CustomJSTickFormatter(code=_SI)
    return plot


def _timeline(window: Any, lanes: Sequence[str]) -> tuple[Any, Any, Any]:
    from bokeh.models import ColumnDataSource, FactorRange, HoverTool, Span
    from bokeh.plotting import figure

    keys = ("y", "l", "r", "c", "phase", "batch", "ms", "operator")
    spans = ColumnDataSource({key: [] for key in keys}, name="spans")
    bands = ColumnDataSource({key: [] for key in ("x", "l", "r", "c", "text")})
    plot = figure(
        name="gantt",
        y_range=FactorRange(*lanes),
        x_range=window,
        x_axis_type="datetime",
        sizing_mode="stretch_both",
        tools="",
    )
    plot.xaxis.formatter = time_figure("unused", window).xaxis[0].formatter
    plot.xgrid.visible = plot.ygrid.visible = False
    plot.xaxis.ticker.desired_num_ticks = 12
    plot.toolbar.logo = None
    plot.quad(left="l", right="r", bottom=0, top=len(lanes), color="c", source=bands, level="underlay")
    drawn = plot.hbar(y="y", left="l", right="r", height=0.72, color="c", line_color=None, source=spans)
    plot.text(
        x="x",
        y=len(lanes) - 0.5,
        text="text",
        source=bands,
        text_font_size="10px",
        text_font={"value": FONT},
        text_color=SOFT,
        text_baseline="middle",
        x_offset=3,
    )
    hidden = lanes.index("seal") + 1
    plot.add_layout(Span(location=hidden, dimension="width", line_color="#c9ced6", line_dash="dotted"))
    tip = "batch @batch · @phase of @operator · @ms{0} ms"
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=tip, point_policy="follow_mouse"))
    return spans, bands, plot


def _colour(at: int) -> str:
    return OPERATOR_COLOURS[at % len(OPERATOR_COLOURS)]
