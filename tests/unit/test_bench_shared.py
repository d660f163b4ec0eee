"""Protects the counts of `headrace bench shared`: a start reads as many objects whatever the size of its
state, a rescale writes no segment of its own, and every ratio is there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.bench.shared.lab import QUICK, Lab, Size
from headrace.bench.shared.openings import count_openings
from headrace.bench.shared.rescales import measure_rescales
from headrace.bench.shared.rows import spec_of

TINY: Size = replace(QUICK, touched=(100,), memory_bytes=32 << 20, opened_keys=500, factor=20)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, TINY.memory_bytes)


def test_a_start_reads_as_many_objects_whatever_the_size(lab: Lab) -> None:
    opening = count_openings(lab, TINY)["opening"]
    small, large = opening["small"], opening["large"]
    assert large["state_mb"] > 5 * small["state_mb"]
    assert small["objects_read"] == large["objects_read"] > 0
    assert small["requests"] == large["requests"]
    assert small["segments_read"] == 0, "the roll-up has the ends of all segments"


def test_a_rescale_writes_no_segment_of_its_own(lab: Lab) -> None:
    state = lab.state("totals", spec_of("totals", TINY.partitions), 20_000)
    rescales = measure_rescales(lab, state, 0.0, TINY)
    assert rescales.segments == 0
    assert rescales.ratios.keys() == {"scale_out", "scale_in"}
    assert (state.spec.partitions, state.layouts[-1].by_range) == (TINY.partitions, True)
