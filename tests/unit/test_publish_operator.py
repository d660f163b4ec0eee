"""Protects the operator record: a changed operator is refused by name, a compatible one goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.blob.memory import MemoryBlobs
from headrace.checkpoint.operator_record import differences, ensure_operator, read_operator
from headrace.errors import OperatorChanged, StateCorrupt, StateMissing
from headrace.format.names import operator_record
from headrace.plan.ids import new_write_id, spec_digest
from headrace.plan.spec import (
    TIME,
    Accumulator,
    Field,
    Fold,
    Grouped,
    Holistic,
    HolisticResult,
    OperatorSpec,
    Window,
    WindowJoin,
)
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.testing import FaultyBlobs, ManualClock, seeded_outcomes

SPEC = OperatorSpec(
    name="counts",
    keys=(Field("k0", "int64", "user"), Field("k1", "string", "city")),
    inputs=(Field("i0", "double", "amount"), Field("i1", "int32", "price")),
    work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "i0", "double"))),
    window=Window(60_000_000),
    emit="final",
    timed=True,
    delays_ms=(10_000,),
    partitions=4,
)

CHANGES = [
    (
        {"keys": (Field("k0", "string", "user"), SPEC.keys[1])},
        ["key `user` was int64, is now string"],
    ),
    (
        {"keys": (Field("k0", "int64", "account"), SPEC.keys[1])},
        ["key #1 was `user` int64, is now `account` int64"],
    ),
    ({"keys": SPEC.keys[:1]}, ["key #2 `city` string is gone"]),
    ({"keys": (*SPEC.keys, Field("k2", "date", "day"))}, ["key #3 `day` date is new"]),
    (
        {"work": Fold((SPEC.work.accumulators[0], Accumulator("max", "i1", "int32")))},
        ["aggregate #2 was sum(amount) double, on overflow error, is now max(price) int32"],
    ),
    (
        {"work": Fold((Accumulator("count", "i0", "int64"), SPEC.work.accumulators[1]))},
        ["aggregate #1 was count(*) int64, is now count(amount) int64 of double"],
    ),
    (
        {"work": Fold(SPEC.work.accumulators[:1])},
        ["aggregate #2 sum(amount) double, on overflow error is gone"],
    ),
    ({"window": None}, ["the window was 60 s, is now none"]),
    ({"window": Window(60_000_000, 5_000_000)}, ["the window was 60 s, is now 60 s offset by 5 s"]),
    ({"window": Window(60_000_000, 0, 20_000_000)}, ["the window was 60 s, is now 60 s every 20 s"]),
    (
        {"window": Window(60_000_000, lateness_us=5_000_000)},
        ["the window was 60 s, is now 60 s with a lateness of 5 s"],
    ),
    (
        {"window": Window(60_000_000, session=True)},
        ["the window was 60 s, is now sessions with a gap of 60 s"],
    ),
    ({"delays_ms": (1, 2)}, ["watermarks below it were 1, are now 2"]),
    (
        {"emit": "changes"},
        ["emit was 'final', is now 'changes': state of final windows has another form"],
    ),
    ({"store": "memory"}, []),
    (
        {"store": "rocksdb"},
        [
            "the store was rmw, is now rocksdb "
            "(write .store('rmw') on the operator, or set spark.headrace.store back)"
        ],
    ),
]


@pytest.mark.parametrize(("change", "lines"), CHANGES)
def test_a_difference_is_said_in_words(change: dict[str, object], lines: list[str]) -> None:
    assert differences(SPEC, replace(SPEC, **change)) == lines


LATE, ROCKS = replace(SPEC, window=Window(60_000_000, lateness_us=1)), replace(SPEC, store="rocksdb")


@pytest.mark.parametrize("spec", [LATE, ROCKS])
def test_windows_that_come_again_may_be_seen_in_another_way(spec: OperatorSpec) -> None:
    assert differences(spec, replace(spec, emit="changes")) == []


LEFT, RIGHT = (
    (Field("v0", "string", "name"), Field(TIME, "timestamp", "seen")),
    (Field("v0", "string", "title"),),
)
JOINED = replace(SPEC, inputs=LEFT[:1], work=WindowJoin("inner", LEFT, RIGHT))
MEDIAN = replace(SPEC, work=Holistic((HolisticResult("percentile", "i0", "double", (0.5,)),)))
GROUPED = replace(SPEC, work=Grouped())

KEPT_CHANGES = [
    (JOINED, {"work": WindowJoin("full", LEFT, RIGHT)}, ["the join was inner, is now full"]),
    (
        JOINED,
        {"work": WindowJoin("inner", LEFT[:1], (Field("v0", "int64", "title"),))},
        [
            "left column #2 `seen` timestamp, the event time is gone",
            "right column `title` was string, is now int64",
        ],
    ),
    (JOINED, {"work": SPEC.work}, ["it was a join, is now an aggregate"]),
    (
        MEDIAN,
        {"work": Holistic((HolisticResult("top", "i1", "int32", (3.0,), by="i0"),))},
        ["aggregate #1 was percentile(amount, 0.5) double, is now top(price, amount, 3) int32"],
    ),
    (MEDIAN, {"work": Grouped()}, ["it was an aggregate, is now a function over groups"]),
    (
        MEDIAN,
        {"work": Holistic(MEDIAN.work.results, SPEC.work.accumulators[:1])},
        [
            "aggregate #1 was percentile(amount, 0.5) double, is now count(*) int64",
            "aggregate #2 percentile(amount, 0.5) double is new",
        ],
    ),
    (GROUPED, {"inputs": SPEC.inputs[:1]}, ["column #2 `price` int32 is gone"]),
]


@pytest.mark.parametrize(("spec", "change", "lines"), KEPT_CHANGES)
def test_a_difference_of_kept_rows_is_said_in_words(
    spec: OperatorSpec, change: dict[str, object], lines: list[str]
) -> None:
    assert differences(spec, spec) == []
    assert differences(spec, replace(spec, **change)) == lines


@pytest.mark.parametrize("spec", [JOINED, MEDIAN, GROUPED])
def test_operators_that_keep_rows_survive_json(spec: OperatorSpec) -> None:
    assert OperatorSpec.from_json(spec.to_json()) == spec


COMPATIBLE = [
    {},
    {"delays_ms": (99_000,)},
    {  # only the names on the wire differ
        "inputs": (Field("i9", "double", "amount"),),
        "work": Fold((SPEC.work.accumulators[0], Accumulator("sum", "i9", "double"))),
    },
]


@pytest.mark.parametrize("change", COMPATIBLE)
def test_what_leaves_the_state_alone_is_allowed(change: dict[str, object]) -> None:
    changed = replace(SPEC, **change)
    assert differences(SPEC, changed) == []
    assert spec_digest(changed) == spec_digest(SPEC)


def test_the_digest_changes_with_the_rows() -> None:
    changed = [
        {"keys": (Field("k0", "string", "user"), SPEC.keys[1])},
        {"work": Fold(SPEC.work.accumulators[:1])},
        {"window": None},
        {"partitions": 8},
    ]
    digests = {spec_digest(replace(SPEC, **change)) for change in changed}
    assert len(digests | {spec_digest(SPEC)}) == 5


def test_another_width_of_a_joins_buckets_is_refused() -> None:
    """Sections are numbered by the width: with another one, rows would be of the other side."""
    spec = replace(SPEC, work=StreamJoin("inner", (), (), 0, 60_000_000, 4_000_000), window=None)
    wider = replace(spec, work=replace(spec.work, bucket_us=5_000_000))
    assert differences(spec, wider) == ["the width of its buckets was 4 s, is now 5 s"]


def test_the_number_of_partitions_may_change() -> None:
    assert differences(SPEC, replace(SPEC, partitions=8)) == []


def test_the_record_is_written_once_and_holds_the_first_spec() -> None:
    blobs = MemoryBlobs()
    assert read_operator(blobs, "q", "counts") is None
    assert ensure_operator(blobs, "q", SPEC) == SPEC
    assert ensure_operator(blobs, "q", replace(SPEC, delays_ms=(5,))) == SPEC
    assert read_operator(blobs, "q", "counts") == SPEC


def test_a_changed_operator_is_refused_and_the_record_stays() -> None:
    blobs = MemoryBlobs()
    ensure_operator(blobs, "q", SPEC)
    before = blobs.get(operator_record("q", "counts"))
    with pytest.raises(OperatorChanged, match=r"'counts'.*the window was 60 s[\s\S]*not touched"):
        ensure_operator(blobs, "q", replace(SPEC, window=None))
    assert blobs.get(operator_record("q", "counts")) == before


def test_a_record_that_must_exist_is_not_made_up() -> None:
    blobs = MemoryBlobs()
    with pytest.raises(StateMissing, match="committed batches"):
        ensure_operator(blobs, "q", SPEC, create=False)
    assert blobs.list("") == []


def test_a_damaged_record_is_named() -> None:
    blobs = MemoryBlobs()
    blobs.put_if_absent(operator_record("q", "counts"), b"{}")
    with pytest.raises(StateCorrupt, match=r"operator\.json"):
        ensure_operator(blobs, "q", SPEC)


def test_a_lost_reply_to_the_first_write_is_settled() -> None:
    for seed in range(20):
        blobs = MemoryBlobs()
        faulty = FaultyBlobs(blobs, seeded_outcomes(seed, 0.2))
        try:
            ensure_operator(faulty, "q", SPEC, clock=ManualClock())
        except Exception:
            continue
        assert read_operator(blobs, "q", "counts") == SPEC


def test_write_ids_are_unique() -> None:
    assert len({new_write_id() for _ in range(100)}) == 100
