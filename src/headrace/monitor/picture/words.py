"""Numbers as people read them."""

from __future__ import annotations

from datetime import datetime

_BARS = " ▁▂▃▄▅▆▇█"


def count(value: float) -> str:
    """A number in three or four characters: 950, 12.3K, 4.5M."""
    for unit in ("", "K", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.0f}{unit}" if abs(value) >= 100 or unit == "" else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.1f}T"


def size(nbytes: float) -> str:
    """Bytes with a unit."""
    if nbytes < 1 << 20:
        return f"{nbytes / (1 << 10):.0f} KB"
    if nbytes < 1 << 30:
        value = nbytes / (1 << 20)
        return f"{value:,.1f} MB" if value < 10 else f"{value:,.0f} MB"
    return f"{nbytes / (1 << 30):.2f} GB"


def duration(ms: float) -> str:
    """Milliseconds with a unit that fits."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    return span(ms / 1000)


def span(seconds: float) -> str:
    """A long time in its two largest units."""
    minutes, days = int(seconds // 60), int(seconds // 86400)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    if days:
        return f"{days} d {int(seconds % 86400 // 3600)} h"
    return f"{minutes // 60} h {minutes % 60} min"


def bars(values: list[float]) -> str:
    """Values as a row of bars, the largest one full."""
    top = max(values, default=0) or 1
    return "".join(_BARS[min(8, int(value / top * 8.99))] for value in values)


def clock_time(ms: int) -> str:
    """The time of day, in the machine's time zone."""
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%H:%M:%S")
