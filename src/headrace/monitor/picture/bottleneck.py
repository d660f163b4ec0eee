"""One sentence that names what limits a query, and one with the remedy. Pure.

The verdict goes by the mean over the last batches: the phase with the largest share of a batch's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SKEWED = 2.0  # times the mean rows of a partition
IDLE = 0.4  # share of the time without a batch, from which on a query keeps up
LARGE = 1.0  # times the memory of the hosts, from which on state is larger than memory


@dataclass(frozen=True)
class Signs:
    """What the last batches of a query looked like; times are means per batch."""

    batch_ms: float = 0.0  # as Spark measured it
    waited_ms: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0  # share of the time in which no batch ran
    operator: str = ""  # the one with most time for rows and results
    store: str = ""
    commit: str = "sync"
    skew: float = 1.0  # rows of its fullest partition over the mean
    fullest: int = 0  # that partition
    state_to_memory: float = 0.0  # bytes of state over the limit of the hosts
    storage_waits_s: Mapping[str, float] = field(default_factory=dict)
    recovering: tuple[int, int] | None = None  # partitions read, of how many
    error: str = ""


@dataclass(frozen=True)
class Finding:
    """What limits the query, and what helps."""

    limit: str  # one word
    sentence: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.advice}".strip()


def bottleneck(signs: Signs) -> Finding:
    """Name what limits the query."""
    if signs.error:
        return Finding("error", "The query has failed.", "The newest error has the reason and the remedy.")
    if signs.storage_waits_s:
        location, seconds = max(signs.storage_waits_s.items(), key=lambda wait: wait[1])
        return Finding(
            "storage",
            f"Hosts have been waiting for {location} for {seconds:.0f} s.",
            "Batches go on when it answers again.",
        )
    if signs.recovering is not None and signs.recovering[0] < signs.recovering[1]:
        read, of = signs.recovering
        return Finding("recovery", f"State is being read from storage: {read} of {of} partitions.")
    if not signs.batch_ms:
        return Finding("start", "No batch has ended yet.")
    phase, ms = _largest(signs)
    share = min(1.0, ms / signs.batch_ms)
    if signs.idle >= IDLE:
        return Finding(
            "none",
            f"The query keeps up: a batch takes {_ms(signs.batch_ms)}, "
            f"and no batch runs for {signs.idle:.0%} of the time.",
        )
    return _VERDICTS[phase](signs, share)


def _largest(signs: Signs) -> tuple[str, float]:
    phases = {name: ms for name, ms in signs.waited_ms.items() if name in _VERDICTS}
    phases["spark"] = max(0.0, signs.batch_ms - sum(phases.values()))
    return max(phases.items(), key=lambda one: one[1])


def _spark(signs: Signs, share: float) -> Finding:
    return Finding(
        "spark",
        f"Spark's own work takes {share:.0%} of a batch: offsets, planning, tasks, the sink.",
        "Larger batches spread it over more rows.",
    )


def _read(signs: Signs, share: float) -> Finding:
    return Finding(
        "read",
        f"{signs.operator} waits for its rows in {share:.0%} of a batch: "
        "the source and the shuffle limit it.",
        "More cores or partitions of the source help; state does not matter here.",
    )


def _apply(signs: Signs, share: float) -> Finding:
    sentence = f"Applying rows to {signs.operator} ({signs.store}) takes {share:.0%} of a batch"
    if signs.skew >= SKEWED:
        return Finding(
            "skew",
            f"{sentence}, and partition {signs.fullest} gets {signs.skew:.1f} times the mean rows.",
            "A key with many rows sets the pace; spark.headrace.combine=on may help.",
        )
    if signs.state_to_memory >= LARGE:
        return Finding(
            "memory",
            f"{sentence}; its state is {signs.state_to_memory:.1f} times the memory of the hosts.",
            "Raise spark.headrace.memory, so that fewer rows are read from disk.",
        )
    return Finding("apply", f"{sentence}; it is all in memory.", "More cores and partitions help.")


def _emit(signs: Signs, share: float) -> Finding:
    return Finding(
        "emit",
        f"Results of {signs.operator} take {share:.0%} of a batch.",
        'Fewer results help: emit="final", or larger windows.',
    )


def _commit(signs: Signs, share: float) -> Finding:
    advice = (
        "hr.start(writer) takes commits off the critical path."
        if signs.commit == "sync"
        else "A faster local disk helps."
    )
    return Finding("commit", f"Commits take {share:.0%} of a batch.", advice)


def _wait(signs: Signs, share: float) -> Finding:
    return Finding(
        "upload",
        f"A batch waits {share:.0%} of its time for the batch before to reach shared storage.",
        "Longer trigger intervals or storage nearby help.",
    )


def _open(signs: Signs, share: float) -> Finding:
    return Finding("open", f"Reading state from storage takes {share:.0%} of a batch.")


def _ms(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


_VERDICTS = {
    "spark": _spark,
    "read": _read,
    "apply": _apply,
    "emit": _emit,
    "log": _commit,
    "seal": _commit,
    "upload": _commit,
    "wait": _wait,
    "open": _open,
}
