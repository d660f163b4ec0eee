"""Random cases: a schema, keys, aggregates, a window, and micro-batches of rows. One seed is one case.

Doubles are dyadic and small, so that sums are exact in any order. Event times are unique, so that first and
last have one answer. Batches overlap in time, so that some rows are late.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

BATCHES = 4
ROWS_PER_BATCH = 50
WIDTH_S, DELAY_S = 60, 30
MINUTES_PER_BATCH = 3
START = dt.datetime(2024, 3, 31, 0, 40, tzinfo=dt.UTC)  # Berlin's clocks change 20 minutes later

Mode = Literal[
    "running",
    "window changes",
    "window final",
    "window without watermark",
    "sliding changes",
    "sliding final",
    "late final",
]
# Width, slide and lateness of the windows of each mode, in seconds.
WINDOWS: dict[Mode, tuple[int, int, int]] = {
    "window changes": (WIDTH_S, WIDTH_S, 0),
    "window final": (WIDTH_S, WIDTH_S, 0),
    "window without watermark": (WIDTH_S, WIDTH_S, 0),
    "sliding changes": (WIDTH_S, 20, 0),
    "sliding final": (WIDTH_S, 25, 0),
    "late final": (WIDTH_S, 20, 240),
}
MODES: tuple[Mode, ...] = ("running", *WINDOWS)
Generator = Callable[[random.Random], Any]

LEAVES: dict[str, Generator] = {
    "boolean": lambda rng: rng.random() < 0.5,
    "tinyint": lambda rng: rng.choice([-128, -1, 0, 1, 127]),
    "smallint": lambda rng: rng.choice([-32768, 0, 5, 32767]),
    "int": lambda rng: rng.choice([-(2**31), -7, 0, 7, 2**31 - 1]),
    "bigint": lambda rng: rng.choice([-(2**50), -1, 0, 3, 2**50]),
    "float": lambda rng: rng.choice([0.0, -0.0, math.nan, 0.5, -1.25, 1024.0]),
    "double": lambda rng: rng.choice([0.0, -0.0, math.nan, 0.125, -3.5, 2.0**20]),
    "decimal(5,2)": lambda rng: Decimal(rng.choice([-99999, -1, 0, 150, 99999])).scaleb(-2),
    "decimal(20,4)": lambda rng: Decimal(rng.choice([-(10**18), -1, 0, 33333, 10**18])).scaleb(-4),
    "decimal(38,18)": lambda rng: Decimal(rng.choice([-(10**33), -1, 0, 7, 10**33])).scaleb(-18),
    "string": lambda rng: rng.choice(["", "a", "b", "ü", "\U0001f30a", "long " * 30]),
    "binary": lambda rng: rng.choice([b"", b"\x00", b"\x00\x00", b"\xff" * 40]),
    "date": lambda rng: dt.date(1969, 12, 30) + dt.timedelta(days=rng.randrange(5)),
    "timestamp": lambda rng: START + dt.timedelta(microseconds=rng.randrange(-2, 3)),
    "timestamp_ntz": lambda rng: START.replace(tzinfo=None) + dt.timedelta(minutes=30 * rng.randrange(5)),
    "interval day to second": lambda rng: dt.timedelta(
        days=rng.randrange(-2, 3), microseconds=rng.randrange(3)
    ),
}
NUMERIC = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(20,4)")
ADDABLE = (*NUMERIC, "decimal(38,18)", "interval day to second")
ANY = ("count", "min", "max", "first", "last")
SPREADS = ("variance", "var_pop", "stddev", "stddev_pop")


@dataclass(frozen=True)
class Case:
    """One random case; `rows` are (batch, time, columns…)."""

    seed: int
    mode: Mode
    schema: str
    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, str], ...]  # function and column
    rows: tuple[tuple[Any, ...], ...]


def case_of(seed: int) -> Case:
    rng = random.Random(seed)
    keys = {f"k{i}": _key_type(rng) for i in range(rng.randrange(1, 4))}
    chosen = [*rng.sample(NUMERIC, 2), *rng.sample(sorted(LEAVES), 3)]
    values = dict(zip((f"v{i}" for i in range(len(chosen))), chosen, strict=True))
    columns = {**keys, **values}
    makers = {name: _maker(rng, kind) for name, kind in columns.items()}
    schema = ", ".join(["batch int", "ts timestamp", *(f"{name} {kind}" for name, kind in columns.items())])
    rows = tuple(
        (batch, _time(rng, batch, index), *(make(rng) for make in makers.values()))
        for batch in range(BATCHES)
        for index in range(ROWS_PER_BATCH)
    )
    aggregates = tuple((function, name) for name, kind in values.items() for function in _functions(kind))
    return Case(seed, MODES[seed % len(MODES)], schema, tuple(keys), aggregates, rows)


def _key_type(rng: random.Random, depth: int = 0) -> str:
    if depth < 2 and rng.random() < 0.3:
        fields = [f"f{i}: {_key_type(rng, depth + 1)}" for i in range(rng.randrange(1, 3))]
        return f"struct<{', '.join(fields)}>"
    return rng.choice(sorted(LEAVES))


def _functions(kind: str) -> tuple[str, ...]:
    sums = ("sum", "avg") if kind in ADDABLE else ()
    return (*ANY, *sums, *(SPREADS if kind in NUMERIC else ()))


def _maker(rng: random.Random, kind: str) -> Generator:
    """A generator of `kind` with nulls; a key's few values make groups that several batches touch."""
    if not kind.startswith("struct<"):
        return lambda rng: None if rng.random() < 0.15 else LEAVES[kind](rng)
    inner = [_maker(rng, field.split(": ", 1)[1]) for field in split_fields(kind)]
    return lambda rng: None if rng.random() < 0.15 else tuple(make(rng) for make in inner)


def split_fields(kind: str) -> list[str]:
    """The fields of `struct<…>`, cut at the commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    body = kind.removeprefix("struct<")[:-1]
    for at, letter in enumerate(body):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(body[start:at].strip())
            start = at + 1
    return [*parts, body[start:].strip()]


def _time(rng: random.Random, batch: int, index: int) -> dt.datetime | None:
    """Unique times that drift forward with the batches; a few rows are far behind, a few have none."""
    if rng.random() < 0.03:
        return None
    minutes = batch * MINUTES_PER_BATCH - (MINUTES_PER_BATCH * 2 if rng.random() < 0.05 else 0)
    seconds = rng.randrange(MINUTES_PER_BATCH * 60)
    micros = batch * ROWS_PER_BATCH + index
    return START + dt.timedelta(minutes=minutes, seconds=seconds, microseconds=micros)
