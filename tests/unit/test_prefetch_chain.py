"""Protects hints in a chain of operators: their hashes are those of Spark's plan, a busy host
delays no batch, and a failure is a lost hint."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.clock import wait_until
from headrace.host.ahead.chain import MESSAGES_MAX, WAITING_BYTES, ChainHints, entries_of, kinds_of
from headrace.plan.columns import WINDOW_START
from headrace.plan.spec import HASH, output_schema
from headrace.testing.contracts.store_contract import TUMBLE, folding
from headrace.wire.contract import Ticket

SPEC = folding(None, "changes")
LINK = {"query": "q", "operator": "above", "partitions": 4, "timed": False, "doors": [], "time": ""}


class Above:
    """The partitions of the operator above."""

    def __init__(self) -> None:
        self.hashes: list[int] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.fails = False

    def expect(self, query: str, operator: str, partition: int, hints: pa.RecordBatch) -> bool:
        assert self.may_go.wait(60)
        if self.fails:
            raise OSError("broken")
        assert (query, operator, partition < 4) == ("q", "above", True)
        self.hashes += hints.column(HASH).to_pylist()
        return True


def results(values: list[str]) -> pa.RecordBatch:
    schema = output_schema(SPEC)
    columns = [pa.array(values) if f.name == "k0" else pa.nulls(len(values), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def chain(above: Above, source: str) -> ChainHints:
    link = {**LINK, "source": source, "keys": ["k0"]}
    ticket = Ticket("start", "q", SPEC, 0, 1, 0, 1, "/nowhere", 3, links=(link,))
    return ChainHints(above, "", Ticket.from_json(ticket.to_json()))  # type: ignore[arg-type]


@pytest.fixture
def above() -> Iterator[Above]:
    above = Above()
    yield above
    above.may_go.set()


def test_results_give_distinct_hashes_of_the_keys_above(above: Above) -> None:
    hints = chain(above, "results")
    hints.hint("input", results(["a"]))
    hints.hint("results", results(["a", "b", "a"]))
    hints.close()
    assert wait_until(lambda: len(above.hashes) == 2, 20_000, 5)
    # spark.sql("SELECT xxhash64('a')"), as a signed number
    assert -8582455328737087284 in above.hashes


def test_times_come_with_the_hashes() -> None:
    spec = folding(TUMBLE, "final")
    schema = output_schema(spec)
    columns = [
        pa.array(["a", "a"])
        if f.name == "k0"
        else pa.array([5, 7], pa.int64()).cast(f.type)
        if f.name == WINDOW_START
        else pa.nulls(2, f.type)
        for f in schema
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    link: dict[str, Any] = {"keys": ["k0"], "timed": True, "time": WINDOW_START}
    entries = entries_of(batch, link, kinds_of(spec))
    assert np.unique(entries[:, 0]).size == 1
    assert entries[:, 1].tolist() == [5, 7]


def test_a_host_that_is_busy_delays_no_batch(above: Above) -> None:
    above.may_go.clear()
    hints = chain(above, "results")
    many = 3 * MESSAGES_MAX
    for number in range(many):
        hints.hint("results", results([f"key-{number}"]))
    hints.close()
    above.may_go.set()
    assert wait_until(lambda: not threads(), 20_000, 5)
    assert 0 < len(above.hashes) < many


def test_rows_that_wait_for_the_thread_are_bounded_in_bytes(above: Above) -> None:
    above.may_go.clear()
    hints = chain(above, "results")
    rows = [results([f"{number}-{'x' * (1 << 20)}"]) for number in range(3 * WAITING_BYTES >> 20)]
    for batch in rows:
        hints.hint("results", batch)
    hints.close()
    above.may_go.set()
    assert wait_until(lambda: not threads(), 20_000, 5)
    assert 0 < len(above.hashes) <= WAITING_BYTES >> 20


def test_a_failure_is_a_lost_hint(above: Above) -> None:
    above.fails = True
    hints = chain(above, "results")
    hints.hint("results", results(["a"]))
    hints.close()
    assert wait_until(lambda: not threads(), 20_000, 5)
    assert above.hashes == []


def test_without_links_there_is_no_thread(above: Above) -> None:
    ticket = replace(Ticket("start", "q", SPEC, 0, 1, 0, 1, "/nowhere", 3))
    hints = ChainHints(above, "", ticket)  # type: ignore[arg-type]
    hints.hint("results", results(["a"]))
    assert not threads()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "chain-hints"]
