"""Some events of a stream: their ids, times and draws, as parallel arrays in emission order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.generators.nexmark.config import NexmarkConfig
from headrace.generators.nexmark.draws import I64, LATE_BY, LATE_TEST, Draws
from headrace.generators.nexmark.ids import time_ms
from headrace.generators.nexmark.schema import TIME


@dataclass(frozen=True)
class Slice:
    """Events to generate; `times_ms` already includes lateness."""

    config: NexmarkConfig
    ids: I64
    times_ms: I64
    draws: Draws

    @classmethod
    def of(cls, ids: I64, config: NexmarkConfig) -> Slice:
        draws = Draws.of(config.seed, ids)
        return cls(config, ids, time_ms(ids, config) - _late_ms(draws, config), draws)

    def at(self, rows: I64) -> Slice:
        """The events at these positions only."""
        return Slice(self.config, self.ids[rows], self.times_ms[rows], self.draws.at(rows))

    def timestamps(self) -> pa.Array:
        return timestamps(self.times_ms)


def timestamps(times_ms: I64) -> pa.Array:
    """Milliseconds since 1970 as Spark's timestamps."""
    return pa.array(times_ms * 1000).view(TIME)


def _late_ms(draws: Draws, config: NexmarkConfig) -> int | I64:
    """How far each event's time lies behind its position in the stream."""
    if config.late_probability == 0.0:
        return 0
    late_by = 1 + draws.below(LATE_BY, config.late_max_ms)
    return np.where(draws.unit(LATE_TEST) < config.late_probability, late_by, 0)
