"""The folders of an operator's partitions at a version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.format.names import layout_prefix
from headrace.plan.partitions.groups import Groups, groups_of
from headrace.plan.partitions.layouts import Layout, Origin, layout_at


@dataclass(frozen=True)
class Folder:
    """A partition's folder and its hash groups."""

    prefix: str
    groups: Groups


def folders_of(query: str, operator: str, layout: Layout | Origin) -> list[Folder]:
    """The folders of a layout, by partition."""
    return [
        Folder(
            layout_prefix(query, operator, number, layout.partitions, by_range=layout.by_range),
            groups_of(number, layout.partitions),
        )
        for number in range(layout.partitions)
    ]


def folders_at(query: str, operator: str, layouts: Sequence[Layout], version: int) -> list[Folder]:
    """The folders that have a version; empty for the base of a branch."""
    layout = layout_at(layouts, version)
    return [] if layout is None else folders_of(query, operator, layout)
