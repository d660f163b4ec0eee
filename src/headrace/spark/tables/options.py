"""The options of the data source, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from headrace.errors import QueryError

_NAMES = (
    "checkpoint",
    "operator",
    "versionAsOf",
    "asOfBatch",
    "changesFrom",
    "changesTo",
    "accumulators",
)


@dataclass(frozen=True)
class TableOptions:
    """The options of a user for a table of state."""

    checkpoint: str
    operator: str | None = None
    version: int | None = None
    as_of_batch: int | None = None
    changes_from: int | None = None
    changes_to: int | None = None
    accumulators: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TableOptions:
        """Options by Spark's names; raises `QueryError` for one that is unknown or malformed."""
        given = {name.lower(): value for name, value in dict(options).items()}
        given.pop("path", None) if "checkpoint" in given else _path(given)
        known = {name.lower(): name for name in _NAMES}
        for name in given.keys() - known.keys():
            close = get_close_matches(name, list(known), n=1)
            meant = f"did you mean {known[close[0]]}? " if close else ""
            raise QueryError(f"option {name} is not known", hint=f"{meant}options are {', '.join(_NAMES)}")
        if "checkpoint" not in given:
            raise QueryError(
                "the query's checkpoint is not given", hint='write .option("checkpoint", "<its location>")'
            )
        numbers = {
            name: _number(name, given[name.lower()]) for name in _NAMES[2:6] if name.lower() in given
        }
        if "changesTo" in numbers and "changesFrom" not in numbers:
            raise QueryError(
                "changesTo is given without changesFrom", hint="give both, or changesFrom alone"
            )
        return cls(
            given["checkpoint"],
            given.get("operator"),
            numbers.get("versionAsOf"),
            numbers.get("asOfBatch"),
            numbers.get("changesFrom"),
            numbers.get("changesTo"),
            given.get("accumulators", "false").strip().lower() == "true",
        )


def _path(given: dict[str, str]) -> None:
    """`load(checkpoint)` and `save(checkpoint)` name the checkpoint too."""
    if "path" in given:
        given["checkpoint"] = given.pop("path")


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise QueryError(
            f"option {name} is {text!r}, not a number", hint="give a version's number"
        ) from None
