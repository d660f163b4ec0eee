"""Contract suites, models and fault injection, shipped with the package."""

from headrace.testing.clock import ManualClock
from headrace.testing.faults.faulty_blobs import FaultyBlobs, Outcome, seeded_outcomes

__all__ = ["FaultyBlobs", "ManualClock", "Outcome", "seeded_outcomes"]
