"""What a job needs to know about its partition beside its inputs, and how a finished job is logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.format.names import leased_name
from headrace.plan.ids import new_number
from headrace.store.segments.reader import Segment
from headrace.wire.contract import Ticket


@dataclass(frozen=True)
class JobPlace:
    """The version that a job begins at."""

    ticket: Ticket
    run: int
    stored_as: str  # the layout of the version's segments

    def new_name(self) -> str:
        """A name for the output that no other job has or will have."""
        return leased_name(self.ticket.batch, self.run, new_number())


def described(inputs: Sequence[Segment], written: Iterable[Segment], where: str, took_ms: int) -> str:
    """One line about a finished compaction."""
    before, after = (sum(segment.size for segment in files) for files in (inputs, written))
    return f"compacted {len(inputs)} segments {where}, {before} bytes to {after}, in {took_ms} ms"
