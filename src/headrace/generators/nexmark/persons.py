"""Person events."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.generators.nexmark.config import FIRST_PERSON_ID, PERSON_BYTES
from headrace.generators.nexmark.draws import I64, Draws
from headrace.generators.nexmark.ids import last_person
from headrace.generators.nexmark.schema import PERSON
from headrace.generators.nexmark.slices import Slice
from headrace.generators.nexmark.text import empty, padding, text

_FIRST = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_NAMES = pa.array([f"{first} {last}" for first in _FIRST for last in _LAST])
_CITIES = pa.array(
    [
        "Phoenix",
        "Los Angeles",
        "San Francisco",
        "Boise",
        "Portland",
        "Bend",
        "Redmond",
        "Seattle",
        "Kent",
        "Cheyenne",
    ]
)
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])

_FIRST_NAME, _LAST_NAME, _CITY, _STATE, _CARD = 2, 3, 4, 5, 6
_USER_LENGTH, _USER, _HOST_LENGTH, _HOST = 10, 11, 12, 13
_FIXED_BYTES = 8


def persons(events: Slice) -> pa.RecordBatch:
    """The rows of person events."""
    draws = events.draws
    words = [_name(draws), _email(draws), _card(draws), _choice(_CITIES, draws, _CITY)]
    words.append(_choice(_STATES, draws, _STATE))
    if events.config.extra:
        extra = padding(draws, _FIXED_BYTES + sum(_lengths(column) for column in words), PERSON_BYTES)
    else:
        extra = empty(len(events.ids))
    ids = pa.array(FIRST_PERSON_ID + last_person(events.ids))
    return pa.RecordBatch.from_arrays([ids, *words, events.timestamps(), extra], schema=PERSON)


def _name(draws: Draws) -> pa.Array:
    first, last = draws.below(_FIRST_NAME, len(_FIRST)), draws.below(_LAST_NAME, len(_LAST))
    return _NAMES.take(pa.array(first * len(_LAST) + last))


def _email(draws: Draws) -> pa.Array:
    user, host = text(draws, _USER_LENGTH, _USER, 7), text(draws, _HOST_LENGTH, _HOST, 5)
    return pc.binary_join_element_wise(user, "@", host, ".com", "")


def _card(draws: Draws) -> pa.Array:
    groups = [pa.array(draws.below(_CARD + at, 10_000)).cast(pa.string()) for at in range(4)]
    return pc.binary_join_element_wise(*(pc.ascii_lpad(group, 4, "0") for group in groups), " ")


def _choice(values: pa.Array, draws: Draws, draw: int) -> pa.Array:
    return values.take(pa.array(draws.below(draw, len(values))))


def _lengths(column: pa.Array) -> I64:
    lengths: I64 = pc.binary_length(column).to_numpy().astype(np.int64)
    return lengths
