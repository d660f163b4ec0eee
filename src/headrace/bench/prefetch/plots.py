"""Plots of sweeps as SVG: lines of sides over the values of one setting. No library is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

COLOURS = ("#c75450", "#e2803a", "#8a63d2", "#3b7dd8", "#2f9e66", "#7a869a")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 560, 300, 60, 34, 130, 44

Lines = Mapping[str, Sequence[float]]


def write(folder: Path, name: str, title: str, xs: Sequence[object], unit: str, lines: Lines) -> None:
    """Writes `<name>.svg`: one line per side, points at even distances."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.svg").write_text(drawn(title, xs, unit, lines) + "\n")


def drawn(title: str, xs: Sequence[object], unit: str, lines: Lines) -> str:
    top = max((value for values in lines.values() for value in values), default=0.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    parts += [_grid(part, top, unit) for part in (0.0, 0.5, 1.0)]
    parts += [
        f'<text x="{_x(at, len(xs)):.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
        f"{escape(str(x))}</text>"
        for at, x in enumerate(xs)
        if len(xs) <= 12 or at % (len(xs) // 6) == 0
    ]
    parts += [_line(number, *line, top) for number, line in enumerate(lines.items())]
    return "\n".join([*parts, "</svg>"])


def _x(at: int, many: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, many - 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _grid(part: float, top: float, unit: str) -> str:
    y = _y(part * top, top)
    line = f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dfe3ea"/>'
    return f'{line}<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{part * top:.3g} {unit}</text>'


def _line(number: int, name: str, values: Sequence[float], top: float) -> str:
    colour = COLOURS[number % len(COLOURS)]
    points = " ".join(f"{_x(at, len(values)):.1f},{_y(value, top):.1f}" for at, value in enumerate(values))
    y = TOP + 16 * number
    label = f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{colour}">{escape(name)}</text>'
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>{label}'
