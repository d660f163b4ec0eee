"""What reading ahead did in one partition: sums since they were last drained."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from headrace.files.stretch import Stretch
from headrace.store.base.waits import WaitHistogram


@dataclass
class AheadCounts:
    """Of hints, by hash. `hidden_ms` is the time of reads that no row waited for."""

    hints: int = 0
    filtered: int = 0  # resident, staged or on their way already
    late: int = 0  # of windows that are closed
    dropped: int = 0  # without room, or outdated before their use
    failed: int = 0  # their read failed
    fetched: int = 0
    used: int = 0
    in_vain: int = 0  # read, and not used in two batches
    hidden_ms: float = 0.0
    slacks: WaitHistogram = field(default_factory=WaitHistogram)  # from a hint to its use
    reads: WaitHistogram = field(default_factory=WaitHistogram)  # by how long their fetch took
    stretch: Stretch = field(default_factory=Stretch)  # from the first fetch to the end of the last one

    def drained(self) -> AheadCounts:
        """The counts so far, which begin anew."""
        counts = AheadCounts(**{one.name: getattr(self, one.name) for one in fields(self)})
        for name, fresh in vars(AheadCounts()).items():
            setattr(self, name, fresh)
        return counts

    def numbers(self) -> dict[str, float]:
        """The sums, without histograms and times."""
        plain = [one.name for one in fields(self) if one.default_factory not in (WaitHistogram, Stretch)]
        return {name: getattr(self, name) for name in plain}
