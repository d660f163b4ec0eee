"""Protects the benchmark of prefetching: all sides replay the same rows, hints are what differs, and
latencies are those of the files that a batch has read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from headrace.bench.prefetch import adaptive, plots
from headrace.bench.prefetch.cases import LOOKUPS, hashes_of
from headrace.bench.prefetch.paced import Feeder, batch_of_file, ended_ms, latencies_ms
from headrace.bench.prefetch.replay import LRU, PREFETCH, Side, replay
from headrace.bench.prefetch.run import run
from headrace.bench.prefetch.sketch import Sketch
from headrace.bench.prefetch.traces import Trace, traces
from headrace.errors import QueryError
from headrace.wire.state_reads import NO_READS

SMALL = Trace("small", 20_000, 1_000, 2, hot=0.3)


def test_hints_answer_before_the_segments_do() -> None:
    # The slack is long: on a busy machine hints must still be read before the rows come.
    plain = replay(SMALL, Side("lru", "lru", slack_ms=0.0), 400_000)
    ahead = replay(SMALL, Side("prefetch", "timestamp", "stage", slack_ms=1000.0), 400_000)
    assert plain.reads.hits == plain.reads.hints == 0
    assert plain.reads.looked_up > 500
    assert ahead.reads.hits > 0.5 * ahead.reads.looked_up
    assert ahead.keys_read <= 1.1 * plain.keys_read


def test_a_trace_is_the_same_for_every_side() -> None:
    for trace in traces(5_000, 300, 3):
        first, again = list(trace.batch_keys()), list(trace.batch_keys())
        assert len(first) == 3
        assert all((one == other).all() for one, other in zip(first, again, strict=True))
        assert max(keys.max() for keys in first) < 5_000
        assert len(np.unique(np.concatenate(first))) > 100
    assert (LRU.lookahead, PREFETCH.lookahead) == ("", "stage")


def test_rows_of_a_static_table_are_read_ahead_too() -> None:
    trace = Trace("table", 6_000, 300, 2, hot=0.0)
    ahead = replay(trace, Side("prefetch", "timestamp", "stage", slack_ms=1000.0), 500_000, 255, LOOKUPS)
    plain = replay(trace, Side("lru", "lru", slack_ms=0.0), 500_000, 255, LOOKUPS)
    assert plain.reads.looked_up == ahead.reads.looked_up > 400
    assert (plain.reads.hits, plain.reads.hints) == (0, 0)
    assert ahead.reads.hits > 0.8 * ahead.reads.looked_up
    assert ahead.keys_read <= 1.1 * plain.keys_read


def test_the_sketch_leaves_frequent_and_repeated_hashes_out() -> None:
    often, *_ = hashes_of(np.arange(1))
    other, once = hashes_of(np.array([-1]))[0], hashes_of(np.arange(3, 500))
    sketch = Sketch(threshold=4)
    assert sketch.passing(np.repeat(often, 3)).tolist() == [often], "repeated"
    for _ in range(20):
        sketch.passing(np.array([often, other]))
    assert often not in sketch.passing(np.array([often]))
    assert len(sketch.passing(once)) > 0.9 * len(once)
    assert Sketch(255).passing(np.array([often])).tolist() == [often]


def test_latency_is_the_end_of_the_batch_less_the_creation_of_its_rows(tmp_path: Path) -> None:
    log = tmp_path / "ck" / "sources" / "0"
    log.mkdir(parents=True)
    for number, names in enumerate((["a", "b"], ["c"], ["d"])):
        entries = [json.dumps({"path": f"file:///in/{name}.parquet", "batchId": number}) for name in names]
        (log / str(number)).write_text("\n".join(["v1", *entries]))
    offsets = {5: 0, 6: 2}  # the batch 6 has read two of the source's batches
    progress = [
        SimpleNamespace(batchId=batch, sources=[SimpleNamespace(endOffset=json.dumps({"logOffset": at}))])
        for batch, at in offsets.items()
    ]
    batches = batch_of_file(tmp_path / "ck", progress)
    assert batches == {"a.parquet": 5, "b.parquet": 5, "c.parquet": 6, "d.parquet": 6}
    feeder = Feeder(tmp_path, tmp_path, 80.0, came_ms={"a.parquet": 1000.0, "c.parquet": 2000.0, "e": 1.0})
    latencies = latencies_ms(feeder, batches, {5: 1100.0, 6: 2500.0})
    assert sorted(latencies)[:8] == [100 + 10.0 * step for step in range(8)]
    assert len(latencies) == 16
    assert latencies.max() == 570.0
    one = SimpleNamespace(timestamp="1970-01-01T00:00:01.500Z", durationMs={"triggerExecution": 250})
    assert ended_ms(one) == 1750.0


def test_a_plot_has_a_line_for_each_side() -> None:
    picture = ElementTree.fromstring(
        plots.drawn("waits < 5", [1, 2], "ms", {"lru": [3, 4], "hints": [1, 0]})
    )
    lines = [one for one in picture.iter() if one.tag.endswith("polyline")]
    assert [len(line.attrib["points"].split()) for line in lines] == [2, 2]
    assert plots.drawn("empty", [], "ms", {})


def test_a_choice_has_settled_when_it_changes_no_more() -> None:
    steps = [adaptive.Step(name, NO_READS, 0.0, 0) for name in ("a", "b", "a", "c", "c", "c", "b")]
    assert adaptive.settled_within(steps, 1, 6) == 2
    assert adaptive.settled_within(steps, 3, 6) == 0


def test_unknown_parts_are_refused() -> None:
    with pytest.raises(QueryError, match="q99"):
        run(parts=["q99"])
