"""Protects `headrace bench shared`: a start reads as many objects whatever the size of its state, a rescale
writes no segment of its own, and the logistics job gives the pairs of its definition.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.bench.shared.host import Far
from headrace.bench.shared.jobs import Job, Logistics, Totals
from headrace.bench.shared.kept import Kept
from headrace.bench.shared.lab import QUICK, Lab, Size
from headrace.bench.shared.openings import count_openings
from headrace.bench.shared.rescales import measure_rescales
from headrace.bench.shared.rows import hashes_in, hashes_of, texts, uniform

TINY: Size = replace(QUICK, touched=(100,), memory_bytes=32 << 20, opened_keys=500, factor=20)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, TINY.memory_bytes)


def test_a_part_leaves_the_states_as_they_were_built(lab: Lab, tmp_path: Path) -> None:
    kept, job = Kept(lab, tmp_path / "kept"), Totals.of(TINY.partitions)
    files: list[list[tuple[str, int]]] = []
    for _ in range(2):
        with kept.state("totals", job, 1_000) as state:
            begun = state.batches
            with lab.host(state, Far()) as host:
                for _ in range(12):  # with a collection
                    state.next(host, uniform, 100)
            assert state.batches == begun + 12
        assert not state.location.exists()
        paths = sorted((tmp_path / "kept").rglob("*.segment"))
        files.append([(path.name, path.stat().st_size) for path in paths])
    assert files[0] == files[1]
    assert files[0]


def test_a_state_that_was_not_finished_is_built_anew(lab: Lab, tmp_path: Path) -> None:
    kept, job = Kept(lab, tmp_path / "kept"), Totals.of(TINY.partitions)
    with kept.state("totals", job, 1_000) as state:
        begun = state.batches
    (finished,) = (tmp_path / "kept").rglob("batches")
    finished.unlink()
    with kept.state("totals", job, 1_000) as state:
        assert state.batches == begun


def test_a_start_reads_as_many_objects_whatever_the_size(lab: Lab, tmp_path: Path) -> None:
    opening = count_openings(Kept(lab, tmp_path / "kept"), TINY)["opening"]
    small, large = opening["small"], opening["large"]
    assert large["state_mb"] > 5 * small["state_mb"]
    assert small["objects_read"] == large["objects_read"] > 0
    assert small["requests"] == large["requests"]
    assert small["segments_read"] == 0, "the roll-up has the ends of all segments"


@pytest.mark.parametrize("job", [Totals.of(TINY.partitions), Logistics.of(TINY.partitions)])
def test_a_rescale_writes_no_segment_of_its_own(lab: Lab, job: Job) -> None:
    state = lab.state(lab.folder / "state", job, 20_000)
    rescales = measure_rescales(lab, state, 0.0, TINY)
    assert rescales.segments == 0
    assert rescales.ratios.keys() == {"scale_out", "scale_in"}
    assert {spec.partitions for spec in state.job.specs} == {TINY.partitions}
    assert state.layouts[-1].by_range


def test_the_logistics_job_joins_the_newest_orders_with_shipping_updates(lab: Lab) -> None:
    """In batch n an order and a shipping update of each key meet n earlier ones of the other side."""
    state = lab.state(lab.folder / "state", Logistics.of(TINY.partitions), 300)
    for number in (1, 2):
        with lab.host(state, Far(0.0)) as host:
            assert state.next(host, uniform, 0).results == 0
            batch = host.batch(state.batches, np.repeat(np.arange(100, dtype=np.int64), 3))
            state.batches += 1
        assert batch.results == 100 * (2 * number + 1)


def test_hashes_are_read_from_keys() -> None:
    keys = np.arange(1000, dtype=np.int64) * 7919
    names = texts(keys, hashes_of(keys))
    assert (hashes_in(names) == hashes_of(keys)).all()
    assert (hashes_in(pa.array(names.to_pylist()[5:])) == hashes_of(keys)[5:]).all()
