"""Which partitions an operator had at which version. Pure decisions over the layouts of its record.

A layout is a number of partitions that counts from a version on. A change of the number appends one. It
counts once its first version is committed: a start from the base before it may go back to the layout of
that base, or choose a third one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FIRST = -1  # the version of initial state; no version is older
KEPT = 50  # layouts: older ones are of versions that no reader retains


@dataclass(frozen=True)
class Layout:
    """A number of partitions, from the version `since` on.

    The folders of the first layout are named by number, those of all others by hash groups. `parents` names
    the record of the manifests that the first version of a branch comes from.
    """

    since: int
    partitions: int
    by_range: bool = False
    parents: str = ""


@dataclass(frozen=True)
class Origin:
    """The layout that a base is in, where the batch after it runs in another one."""

    partitions: int = 0
    by_range: bool = False
    parents: str = ""  # of a branch: the name of the record of its parents, and no layout

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> Origin | None:
        return None if values is None else cls(**values)


def first_layout(partitions: int) -> tuple[Layout, ...]:
    """The layouts of an operator that never had another one."""
    return (Layout(FIRST, partitions),)


def layout_at(layouts: Sequence[Layout], version: int) -> Layout | None:
    """The layout of a version; None for the base of a branch, which lies in no layout of its own."""
    return max((one for one in layouts if one.since <= version), key=lambda one: one.since, default=None)


def rescaled(layouts: Sequence[Layout], base: int | None, partitions: int) -> tuple[Layout, ...]:
    """The layouts of a start from `base` with a number of partitions.

    A layout that was begun after the base never committed, and is forgotten.
    """
    if base is None:
        return first_layout(partitions)
    kept = tuple(one for one in layouts if one.since <= base)
    if not kept:
        return (Layout(base + 1, partitions, by_range=True, parents=layouts[0].parents),)
    if kept[-1].partitions == partitions:
        return kept
    return (*kept, Layout(base + 1, partitions, by_range=True))[-KEPT:]


def origin_of(layouts: Sequence[Layout], base: int | None) -> Origin | None:
    """Where the newest layout finds `base`; None where the base is a version of that layout."""
    if base is None:
        return None
    layout = layout_at(layouts, base)
    if layout is None:
        return Origin(parents=layouts[0].parents)
    return None if layout == layouts[-1] else Origin(layout.partitions, layout.by_range)
