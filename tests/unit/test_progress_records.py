"""Protects progress records: sums, wall-clock spans, hidden parts that come later, frames, pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from progress_rows import START_MS, hidden, progress, summary

from headrace.coordinator.progress import BatchProgress, total, with_hidden
from headrace.errors import QueryError
from headrace.monitor.picture.phases import hidden_ms, waited_ms
from headrace.monitor.picture.run import Progress, progress_of
from headrace.wire.contract import Summary


def test_a_summary_crosses_the_wire_with_its_spans() -> None:
    import json

    sent = summary(0, 3, hidden=hidden(2))
    assert Summary.of(json.loads(sent.to_json())) == sent


def test_a_batch_begins_with_its_first_and_ends_with_its_last_waited_phase() -> None:
    late = summary(1, 0, spans=tuple(s._replace(end_ms=s.end_ms + 500) for s in summary(1, 0).spans))
    batch = total(0, [summary(0, 0), late])
    assert (batch.started_ms, batch.ended_ms) == (START_MS, START_MS + 544)
    assert batch.seconds == pytest.approx(0.544)
    assert batch.rows_per_s == pytest.approx(300 / 0.544)
    assert max(span.end_ms - START_MS for span in batch.spans if span.phase == "log") == 544


def test_a_hidden_commit_extends_the_timeline_and_not_the_batch() -> None:
    later = with_hidden(summary(0, 0), hidden(0))
    batch = total(0, [later])
    assert batch.ended_ms == START_MS + 44
    assert max(span.end_ms for span in batch.spans) == START_MS + 100
    assert hidden_ms(batch) == {"seal": 7.0, "upload": 33.0, "compaction": 0.0}


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        ("sync", {"seal": 6.0, "upload": 4.0, "log": 0.0}),
        ("upload", {"seal": 7.0, "log": 3.0}),
        ("async", {"log": 3.0}),
    ],
)
def test_what_a_batch_waits_for_goes_by_its_commit_mode(commit: str, expected: dict[str, float]) -> None:
    batch = progress(0, commit=commit, critical_ms=10.0, seal_ms=8.0, publish_ms=4.0, log_ms=3.0)
    waited = waited_ms(batch)
    assert {phase: waited.get(phase, 0.0) for phase in expected} == expected
    assert waited["apply"] == 20.0


def test_a_record_survives_json_and_unknown_names() -> None:
    batch = progress(4)
    assert BatchProgress.of({**batch.to_dict(), "of a later release": 1}) == batch


def test_frames_and_pictures_have_every_batch() -> None:
    run = Progress({"counts": [progress(number) for number in range(5)], "empty": []})
    frame = run.toPandas()
    assert frame["batch"].tolist() == [0, 1, 2, 3, 4]
    assert frame["rows_in"].sum() == 5 * 300
    assert str(frame["started"].dt.tz) == "UTC"
    picture = ElementTree.fromstring(run.plot().svg)
    assert "counts" in "".join(picture.itertext())
    points = [
        line.get("points", "").split() for line in picture.iter("{http://www.w3.org/2000/svg}polyline")
    ]
    assert [len(one) for one in points] == [5, 0, 5, 0], "rows per second, then memory"


def test_an_unknown_operator_is_answered_with_the_known_ones() -> None:
    run = Progress({"sessions": []})
    with pytest.raises(QueryError, match=r"did you mean sessions\?"):
        run["session"]
    with pytest.raises(KeyError):
        run["other"]
    assert "other" not in run


def test_the_last_record_of_a_batch_counts() -> None:
    first, second = progress(0), progress(0, seal_ms=9.0)
    records = [
        {"kind": "batch", "at_ms": 1, "query": "q", "operator": "counts", "progress": one.to_dict()}
        for one in (first, second)
    ]
    assert progress_of(records) == {"counts": [second]}
