"""An operator's parts in the user's words, and the differences between two descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from headrace.plan.columns import TIME, Field


@dataclass(frozen=True)
class Part:
    """The user's name for a part, and its type."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True)
class Parts:
    """A list of like parts, such as keys; a part that is `named` may change its type under its name."""

    noun: str
    parts: tuple[Part, ...]
    named: bool = True


@dataclass(frozen=True)
class Description:
    """Traits (a noun and its value) and lists of parts."""

    traits: tuple[tuple[str, str], ...] = ()
    lists: tuple[Parts, ...] = ()


def column_part(field: Field) -> Part:
    is_time = ", the event time" if field.name == TIME else ""
    return Part(f"`{field.label or field.name}`", field.type + is_time)


def column_parts(noun: str, fields: Sequence[Field]) -> Parts:
    return Parts(noun, tuple(column_part(field) for field in fields))


def differences(old: Description, new: Description) -> list[str]:
    """What changed from `old` to `new`; both describe the same kind of work."""
    traits = [
        f"{noun} was {before}, is now {after}"
        for (noun, before), (_, after) in zip(old.traits, new.traits, strict=True)
        if before != after
    ]
    lists = zip(old.lists, new.lists, strict=True)
    return traits + [text for before, after in lists for text in changes(before, after)]


def changes(old: Parts, new: Parts) -> list[str]:
    """What changed in one list of parts."""
    texts, noun = [], new.noun
    for number, (before, after) in enumerate(zip_longest(old.parts, new.parts), start=1):
        if before == after:
            continue
        if before is None:
            texts.append(f"{noun} #{number} {after} is new")
        elif after is None:
            texts.append(f"{noun} #{number} {before} is gone")
        elif new.named and before.name == after.name:
            texts.append(f"{noun} {before.name} was {before.type}, is now {after.type}")
        else:
            texts.append(f"{noun} #{number} was {before}, is now {after}")
    return texts
