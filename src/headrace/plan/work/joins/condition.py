"""A condition over both rows of a pair, beside equal keys: a term of plain values.

    truth = (and | or, truth, truth) · (not, truth) · (null, value) · (comparison, value, value) · value
    value = (left | right, input, type) · (literal, type, value) · (cast, type, value) · (abs, type, value)
          · (add | subtract | multiply, type, value, value)

Comparisons are those of `COMPARISONS`. A value of type `bool` is a truth. Truth has three values, as in
SQL: a pair matches if the term is true, not if it is null. NaN equals itself and is the greatest number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Term = tuple[Any, ...]

COMPARISONS: Mapping[str, str] = {
    "equal": "=",
    "same": "<=>",  # null is equal to null
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
ARITHMETIC: Mapping[str, str] = {"add": "+", "subtract": "-", "multiply": "*"}
NUMBERS = frozenset({"int32", "int64", "double"})  # in which the host computes
INPUTS = ("left", "right")  # by side


def term_of(json: Any) -> Any:
    """The term that JSON has as lists."""
    return tuple(term_of(part) for part in json) if isinstance(json, list | tuple) else json


def inputs_in(term: Term) -> Iterator[tuple[str, str, str]]:
    """Side, input and type of every column that a term reads."""
    if term[0] in INPUTS:
        yield term[0], term[1], term[2]
    else:
        for part in term[1:]:
            if isinstance(part, tuple):
                yield from inputs_in(part)


def spelled(term: Term, labels: Mapping[tuple[str, str], str]) -> str:
    """The term as users write it; `labels` has the columns by side and input."""
    name, parts = term[0], [spelled(part, labels) for part in term[1:] if isinstance(part, tuple)]
    if name in INPUTS:
        return labels.get((name, term[1]), term[1])
    if name == "literal":
        return repr(term[2])
    if name in ("and", "or"):
        return f"({parts[0]} {name} {parts[1]})"
    if name in COMPARISONS or name in ARITHMETIC:
        return f"({parts[0]} {COMPARISONS.get(name) or ARITHMETIC[name]} {parts[1]})"
    endings = {"not": f"not {parts[0]}", "null": f"{parts[0]} is null", "cast": f"{term[1]}({parts[0]})"}
    return endings.get(name, f"{name}({parts[0]})")
