"""Protects the store contract's forwarding: a store around another one answers as the inner store does.

A member that is not forwarded falls back to the contract's default: nothing fails, queries only get slow.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.plan.spec import OperatorSpec, StoreName
from headrace.store.base.contract import Store
from headrace.store.base.delegating import DelegatingStore
from headrace.testing.contracts.store_contract import AMPLE, SECOND, SESSION, folding, keeping
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row

MEMBERS = sorted({name for name in (*vars(Store), *Store.__annotations__) if not name.startswith("_")})
ARGUMENTS = {
    name: len(inspect.signature(member).parameters) - 1  # without self
    for name, member in vars(Store).items()
    if inspect.isfunction(member)
}


class Recorder:
    """An inner store: every attribute is unique, every call is recorded."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        if name not in ARGUMENTS:
            return f"the {name} of the inner store"

        def call(*arguments: Any) -> str:
            self.calls.append((name, arguments))
            return f"the {name} of the inner store"

        return call


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_of_the_contract_is_forwarded(name: str) -> None:
    inner: Any = Recorder()
    outer = DelegatingStore(inner)
    if name not in ARGUMENTS:
        assert getattr(outer, name) == f"the {name} of the inner store"
        return
    arguments = tuple(object() for _ in range(ARGUMENTS[name]))
    returned = getattr(outer, name)(*arguments)
    assert inner.calls == [(name, arguments)]
    assert returned in (None, f"the {name} of the inner store")


@pytest.mark.parametrize("name", ["files", "segments", "watermark_us", "late_rows"])
def test_what_the_host_sets_is_set_in_the_inner_store(name: str) -> None:
    inner: Any = Recorder()
    outer, value = DelegatingStore(inner), object()
    setattr(outer, name, value)
    assert vars(inner)[name] is value


CASES: list[tuple[OperatorSpec, StoreName]] = [
    *((folding(SESSION, "final"), name) for name in ("rmw", "memory", "rocksdb")),
    *((keeping(SESSION), name) for name in ("aur", "memory", "rocksdb", "auto")),
]


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_sessions_that_are_stored_and_not_in_memory_are_looked_up(
    spec: OperatorSpec, name: StoreName, tmp_path: Path
) -> None:
    lab = StoreLab(replace(spec, store=name), tmp_path, AMPLE)
    rows = [Row(key, SECOND * (key % 3), key) for key in range(40)]
    assert not lab.store.looks_up
    lab.epoch(rows, 0)
    lab.reopen()
    assert lab.store.looks_up
    lab.epoch([Row(1, 100 * SECOND, 1)], 90 * SECOND)
    assert not lab.store.looks_up
