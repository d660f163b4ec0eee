"""The kinds of work by their names in JSON; a new kind of work is one line here."""

from __future__ import annotations

from typing import Any

from headrace.plan.work.base import Work
from headrace.plan.work.cells import Cells
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.changes.top import Top
from headrace.plan.work.dedup import Dedup
from headrace.plan.work.flat import MEMBERS, flat_name
from headrace.plan.work.fold import Fold
from headrace.plan.work.grouped import Grouped
from headrace.plan.work.holistic import Holistic
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.plan.work.joins.window_join import WindowJoin

WORKS: dict[str, type[Work]] = {
    Fold.name: Fold,
    Holistic.name: Holistic,
    WindowJoin.name: WindowJoin,
    Grouped.name: Grouped,
    Cells.name: Cells,
    Dedup.name: Dedup,
    Retracting.name: Retracting,
    Top.name: Top,
    StreamJoin.name: StreamJoin,
    Distinct.name: Distinct,
}


def pop_work(members: dict[str, Any]) -> Work:
    """The work of an operator's JSON; its members are removed, so that those of the operator remain."""
    if "work" in members:
        own = members.pop("work")
        name = own.pop("name")
    else:
        own = {member: members.pop(member) for member in MEMBERS}
        name = flat_name(own)
    if name not in WORKS:
        raise ValueError(f"{name!r} is not a kind of work; known are {', '.join(WORKS)}")
    return WORKS[name].from_json(own)
