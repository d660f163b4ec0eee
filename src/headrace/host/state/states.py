"""The states of a partition between and during batches.

    IDLE ──begin──▶ RUNNING ──published──▶ IDLE
                       ├──aborted──▶ IDLE
                       └──logged──▶ LOGGED ──sealed──▶ SEALED ──begin──▶ RUNNING

A newer attempt may begin in any state.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What the store in memory is."""

    IDLE = "idle"  # at the version of the manifest, or absent
    RUNNING = "running"  # changed by the current transaction
    LOGGED = "logged"  # at no version: its last epoch is in the log and waits for its seal
    SEALED = "sealed"  # at a version that shared storage may lack

    def to(self, state: State) -> State:
        """The next state; raises where the partition cannot go there."""
        if state not in _NEXT[self]:
            raise ValueError(f"a partition that is {self.value} cannot become {state.value}")
        return state


_NEXT = {
    State.IDLE: {State.IDLE, State.RUNNING},
    State.RUNNING: {State.IDLE, State.RUNNING, State.LOGGED},
    State.LOGGED: {State.IDLE, State.RUNNING, State.SEALED},
    State.SEALED: {State.IDLE, State.RUNNING},
}
