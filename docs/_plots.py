"""Plots of the benchmarks' page: each is drawn from a table of the page when the site is built.

So a plot shows what its table says. It needs no plotting library and loads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

# The heading of a section, the column that names the bars, and the columns of the bars.
PLOTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Running aggregate: `rmw`", "side", ("rows/s",)),
    ("FlowKV's queries: `flowkv`", "query", ("Headrace", "RocksDB", "Spark", "no state")),
    ("ReadWrite: `readwrite`", "phase", ("Headrace", "RocksDB")),
    ("Stores: `stores`", "workload", ("Headrace", "RocksDB")),
)
COLOURS = {"Headrace": "#3b7dd8", "RocksDB": "#e2803a", "Spark": "#c75450", "no state": "#b9c0cb"}
LABELS, BARS, VALUES, BAR, GAP, TOP = 220, 430, 70, 13, 9, 26

Table = list[list[str]]


def with_plots(page: str) -> str:
    """The page, with each plot above its table."""
    for heading, label, columns in PLOTS:
        table = table_of(page, heading, (label, *columns))
        first = "| " + " | ".join(table[0]) + " |\n"
        start = page.index(first, page.index(f"\n## {heading}\n"))
        picture = plot(table, label, columns)
        page = f"{page[:start]}```{{raw}} html\n{picture}\n```\n\n{page[start:]}"
    return page


def table_of(page: str, heading: str, columns: Sequence[str]) -> Table:
    """The first table of a section that has all of the columns: its header, then its rows."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for lines in re.findall(r"(?:^\|.*\|\n)+", section, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines.splitlines()
        ]
        if set(columns) <= set(rows[0]):
            return [rows[0], *rows[2:]]
    raise LookupError(f"the section {heading} has no table with the columns {', '.join(columns)}")


def bars(table: Table, label: str, columns: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """A name per row, and the columns in which the row has a number of thousands."""
    places = [(column, table[0].index(column)) for column in columns]
    for row in table[1:]:
        values = [(column, thousands(row[place])) for column, place in places]
        present = [(column, value) for column, value in values if value is not None]
        if present:
            yield row[table[0].index(label)], present


def thousands(cell: str) -> int | None:
    number = re.fullmatch(r"([\d,]+) K", cell)
    return None if number is None else int(number[1].replace(",", ""))


def plot(table: Table, label: str, columns: Sequence[str]) -> str:
    """Horizontal bars, a group per row of the table."""
    groups = list(bars(table, label, columns))
    most = max(value for _, values in groups for _, value in values)
    parts, at = list(legend(columns)), TOP
    for name, values in groups:
        middle = at + len(values) * BAR / 2 + 4
        parts.append(f'<text x="{LABELS - 8}" y="{middle:.1f}" text-anchor="end">{plain(name)}</text>')
        for column, value in values:
            wide, colour = BARS * value / most, COLOURS.get(column, COLOURS["Headrace"])
            parts.append(
                f'<rect x="{LABELS}" y="{at}" width="{wide:.1f}" height="{BAR - 2}" fill="{colour}"/>'
            )
            parts.append(f'<text x="{LABELS + wide + 5:.1f}" y="{at + BAR - 3}">{value:,} K</text>')
            at += BAR
        at += GAP
    width = LABELS + BARS + VALUES
    style = 'style="max-width:100%;height:auto" font-family="sans-serif" font-size="11" fill="currentColor"'
    return f'<svg viewBox="0 0 {width} {at}" width="{width}" {style}>{"".join(parts)}</svg>'


def legend(columns: Sequence[str]) -> Iterator[str]:
    names = columns if len(columns) > 1 else ()
    for number, column in enumerate(names):
        x = LABELS + 100 * number
        yield f'<rect x="{x}" y="4" width="10" height="10" fill="{COLOURS[column]}"/>'
        yield f'<text x="{x + 15}" y="13">{column}</text>'


def plain(name: str) -> str:
    """A label without marks, and without what stands in parentheses."""
    return escape(re.sub(r"\s*\(.*?\)|`", "", name))
