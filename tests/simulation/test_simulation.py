"""Protects commits in every mode against storage that fails, hosts that die, drivers that were replaced and
disks that are lost or torn: a sample of the seeds.
"""

from __future__ import annotations

import pytest

from headrace.testing.simulation.many import run_seeds

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # hosts that died closed nothing


def test_two_hundred_seeds_hold() -> None:
    met = run_seeds(range(200))
    assert not met.failed
    for event in (
        "starts", "applications", "silences", "moves", "stale batches", "orphans", "torn", "lost",
    ):  # fmt: skip
        assert met.events[event], f"no seed meets {event}"
