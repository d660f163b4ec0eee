"""The JSON form of the first four kinds of work: members beside those of the operator.

State of earlier releases has this form, so it stays as it is. Later kinds of work use `Work.to_json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.plan.columns import Field
from headrace.plan.work.accumulator import Accumulator

MEMBERS = ("accumulators", "combined", "grouped", "holistics", "join")


def flat(
    accumulators: Iterable[Accumulator] = (),
    *,
    combined: bool = False,
    grouped: bool = False,
    holistics: Iterable[dict[str, Any]] = (),
    join: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """All members of the flat form; each kind of work sets its own."""
    return {
        "accumulators": [accumulator.to_json() for accumulator in accumulators],
        "combined": combined,
        "grouped": grouped,
        "holistics": list(holistics),
        "join": join,
    }


def flat_name(members: dict[str, Any]) -> str:
    """The kind of work that wrote these members."""
    if members["join"]:
        return "window_join"
    if members["grouped"]:
        return "grouped"
    return "holistic" if members["holistics"] else "fold"


def accumulators_in(members: dict[str, Any]) -> tuple[Accumulator, ...]:
    return tuple(Accumulator(**accumulator) for accumulator in members["accumulators"])


def fields_in(fields: Iterable[dict[str, str]]) -> tuple[Field, ...]:
    return tuple(Field(**field) for field in fields)


def row_digest(
    inputs: tuple[Field, ...], accumulators: Iterable[Accumulator] = (), *, join: bool = False
) -> dict[str, Any]:
    """The digest's members of work that keeps rows."""
    return {
        "accumulators": accumulator_digest(accumulators),
        "kept": [field.type for field in inputs],
        "join": join,
    }


def accumulator_digest(accumulators: Iterable[Accumulator]) -> list[tuple[str, ...]]:
    return [
        (one.kind, one.type, one.overflow, *(() if one.by is None else ("by",))) for one in accumulators
    ]
