"""A picture of a run as SVG: rows per second, batch time by phase, memory. Needs no plotting library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from headrace.coordinator.progress import BatchProgress
from headrace.monitor.picture.phases import COLOURS, PHASES, hidden_ms, waited_ms
from headrace.monitor.picture.words import count, size

WIDTH, LEFT, RIGHT, PANEL, GAP, TOP = 860, 64, 16, 120, 44, 40
OPERATOR_COLOURS = ("#3b7dd8", "#e07a3f", "#4aa588", "#7a5ea8", "#c9a227", "#c0506b", "#5f7f95", "#8a6d4b")
INK, SOFT, LINE = "#1d2530", "#6b7685", "#e6e9ee"
FONT = "Inter, system-ui, 'DejaVu Sans', sans-serif"

MARGIN_MS = 60_000  # a longer pause between batches is not counted as time of the later one
Run = Mapping[str, Sequence[BatchProgress]]
Scale = Callable[[float], float]


def plot_svg(run: Run) -> str:
    """The picture; batches go from left to right by their number."""
    numbers = sorted({batch.batch for batches in run.values() for batch in batches})
    place = {number: at for at, number in enumerate(numbers)}
    step = (WIDTH - LEFT - RIGHT) / max(1, len(numbers))
    panels = [
        _lines("rows per second", run, place, step, _rates(run).__getitem__, count),
        _phases(run, place, step),
        _lines("memory", run, place, step, lambda batch: float(batch.memory_bytes), size),
    ]
    height = TOP + len(panels) * (PANEL + GAP)
    body = "".join(
        f'<g transform="translate(0 {TOP + at * (PANEL + GAP)})">{panel}</g>'
        for at, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="{FONT}" font-size="11"><rect width="{WIDTH}" height="{height}" '
        f'fill="#fff"/>{_legend(run)}{body}{_axis(numbers, step, height)}</svg>'
    )


def _rates(run: Run) -> dict[BatchProgress, float]:
    """Rows over the time from the end of the batch before to a batch's own end."""
    rates = {}
    for batches in run.values():
        before = 0
        for batch in batches:
            start = before if 0 < batch.ended_ms - before < MARGIN_MS else batch.started_ms
            rates[batch] = batch.rows_in / max(1, batch.ended_ms - start) * 1000
            before = batch.ended_ms
    return rates


def _legend(run: Run) -> str:
    x, parts = LEFT, []
    for at, name in enumerate(run):
        parts.append(_key(x, 16, _colour(at), name))
        x += 24 + 7 * len(name)
    return "".join(parts)


def _key(x: float, y: float, colour: str, text: str) -> str:
    return (
        f'<rect x="{x}" y="{y - 8}" width="9" height="9" rx="2" fill="{colour}"/>'
        f'<text x="{x + 13}" y="{y}" fill="{SOFT}">{escape(text)}</text>'
    )


def _lines(
    title: str,
    run: Run,
    place: Mapping[int, int],
    step: float,
    value: Callable[[BatchProgress], float],
    words: Callable[[float], str],
) -> str:
    top = max((value(batch) for batches in run.values() for batch in batches), default=0.0) or 1.0
    drawn = []
    for at, batches in enumerate(run.values()):
        points = " ".join(
            f"{LEFT + (place[batch.batch] + 0.5) * step:.1f},{PANEL * (1 - value(batch) / top):.1f}"
            for batch in batches
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{_colour(at)}" stroke-width="1.6"/>')
    return _frame(title, [(1.0, words(top)), (0.5, words(top / 2)), (0.0, "0")]) + "".join(drawn)


def _phases(run: Run, place: Mapping[int, int], step: float) -> str:
    """Stacked bars: above the line what batches waited for, below it what was hidden."""
    up: dict[int, list[tuple[str, float]]] = {}
    down: dict[int, list[tuple[str, float]]] = {}
    for batches in run.values():
        for batch in batches:
            up.setdefault(batch.batch, []).extend(waited_ms(batch).items())
            down.setdefault(batch.batch, []).extend(hidden_ms(batch).items())
    high = max((sum(ms for _, ms in stack) for stack in up.values()), default=0.0) or 1.0
    low = max((sum(ms for _, ms in stack) for stack in down.values()), default=0.0)
    per_ms, zero = PANEL / (high + low), PANEL * high / (high + low)
    bars = []
    for stacks, direction in ((up, -1), (down, 1)):
        for number, stack in stacks.items():
            x, y = LEFT + place[number] * step, zero
            for phase, ms in stack:
                length = ms * per_ms
                bars.append(_bar(x, y if direction > 0 else y - length, step, length, COLOURS[phase]))
                y += direction * length
    labels = [(1.0, f"{high / 1000:.2f} s"), (1 - zero / PANEL, "0")]
    shown = [
        phase
        for phase in PHASES
        if any(p == phase and ms > 0 for s in (up, down) for v in s.values() for p, ms in v)
    ]
    keys = "".join(_key(LEFT + 230 + 78 * at, -8, COLOURS[phase], phase) for at, phase in enumerate(shown))
    return _frame("batch time; below the line: hidden", labels) + "".join(bars) + keys


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    if height < 0.05:
        return ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.9:.1f}" height="{height:.1f}" fill="{colour}"/>'
    )


def _frame(title: str, labels: list[tuple[float, str]]) -> str:
    lines = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{PANEL * (1 - at):.1f}" y2="{PANEL * (1 - at):.1f}" '
        f'stroke="{LINE}"/><text x="{LEFT - 6}" y="{PANEL * (1 - at) + 4:.1f}" text-anchor="end" '
        f'fill="{SOFT}">{text}</text>'
        for at, text in labels
    )
    return f'<text x="{LEFT}" y="-8" fill="{INK}" font-weight="600">{title}</text>{lines}'


def _axis(numbers: list[int], step: float, height: int) -> str:
    every = max(1, len(numbers) // 10)
    return "".join(
        f'<text x="{LEFT + (at + 0.5) * step:.1f}" y="{height - GAP + 18}" text-anchor="middle" '
        f'fill="{SOFT}">{number}</text>'
        for at, number in enumerate(numbers)
        if at % every == 0
    )


def _colour(at: int) -> str:
    return OPERATOR_COLOURS[at % len(OPERATOR_COLOURS)]
