"""Protects commits in every mode against storage that fails and hosts that die: a sample of the seeds."""

from __future__ import annotations

import pytest

from headrace.testing.simulation.simulation import run_seeds

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # hosts that died closed nothing


def test_forty_seeds_hold() -> None:
    met = run_seeds(range(40))
    assert not met.failed
    assert met.starts
    assert met.lost, "some seed loses a disk at the wrong moment"
