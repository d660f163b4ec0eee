"""The options of all record sources, from the strings that a user gives to Spark.

| option | default | meaning |
|---|---|---|
| `view` | `rows` | `rows`: columns; `text`: one column `value`, lines of 65 bytes |
| `rate` | 1500 | records per second of event time |
| `spread` | 0.05 | how much the counts of single seconds differ (`Traffic`) |
| `seed` | 0 | chooses the records |
| `unthrottled` | false | true: as fast as the query reads them; else `rate` per second of real time |
| `records` | no end | total number of records |
| `recordsPerBatch` | 3 seconds' worth | most records in a batch |
| `partitions` | 2 | tasks that generate them |
| `baseTime` | 2012-05-01 | event time of the first record, seconds since 1970 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.errors import QueryError
from headrace.generators.records.traffic import Traffic

BASE_TIME_S = 1_335_830_400
"""2012-05-01T00:00:00Z."""

VIEWS = ("rows", "text")
TRIGGER_S = 3
_NAMES = (
    "view",
    "rate",
    "spread",
    "seed",
    "unthrottled",
    "records",
    "recordsPerBatch",
    "partitions",
    "baseTime",
)
_T = TypeVar("_T")


@dataclass(frozen=True)
class SourceOptions:
    """The contents of a stream, and how it is cut and paced."""

    traffic: Traffic
    view: str
    unthrottled: bool
    records: int | None
    per_batch: int
    partitions: int
    base_time_s: int

    @classmethod
    def parse(cls, source: str, options: Mapping[str, str]) -> SourceOptions:
        """Parses the options; names are case-insensitive, and an unknown one is an error."""
        lowered = {name.lower(): value for name, value in options.items()}
        unknown = lowered.keys() - {name.lower() for name in _NAMES}
        if unknown:
            raise QueryError(
                f"{source}: unknown option {', '.join(sorted(unknown))}",
                hint=f"use one of {', '.join(_NAMES)}",
            )

        def read(name: str, convert: Callable[[str], _T], default: _T) -> _T:
            text = lowered.get(name.lower())
            try:
                return default if text is None else convert(text)
            except ValueError as error:
                raise QueryError(f"{source}: {name} is {text!r}", hint=str(error)) from error

        rate = read("rate", _at_least(1), 1500)
        return cls(
            traffic=Traffic(rate, read("spread", float, 0.05), read("seed", int, 0)),
            view=read("view", _one_of(VIEWS), "rows"),
            unthrottled=read("unthrottled", _flag, False),
            records=read("records", _at_least(0), None),
            per_batch=read("recordsPerBatch", _at_least(1), rate * TRIGGER_S),
            partitions=read("partitions", _at_least(1), 2),
            base_time_s=read("baseTime", int, BASE_TIME_S),
        )


def _at_least(low: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if int(text) < low:
            raise ValueError(f"give a whole number from {low} on")
        return int(text)

    return convert


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"give one of {', '.join(words)}")
        return text.lower()

    return convert


def _flag(text: str) -> bool:
    return _one_of(("true", "false"))(text) == "true"
