"""Opens the store that an operator's state lives in: the one place that knows every kind of store."""

from __future__ import annotations

from headrace.spec import OperatorSpec, StoreName
from headrace.store.aar import open_aar
from headrace.store.aur import AurStore, aur_kinds
from headrace.store.budget import MemoryBudget
from headrace.store.choose import adds
from headrace.store.contract import FileKind, Seal, Store
from headrace.store.final import FinalStore, added_kind
from headrace.store.kept import KeptLayout
from headrace.store.kept_store import kept_kind
from headrace.store.layout import RowLayout
from headrace.store.memory import EndlessBudget, MemoryStore
from headrace.store.migrate import GrowingBudget, MovingStore, found_as
from headrace.store.range import open_range
from headrace.store.rmw import RmwStore
from headrace.store.segment import Segment
from headrace.store.session import SessionStore, session_kinds

ROWS = "rows"


def kinds_of(spec: OperatorSpec, said: str = "") -> tuple[FileKind, ...]:
    """The kinds of segments that the operator's store writes; the first holds its rows.

    `said` is the store that the manifest of the version names, if there is one.
    """
    if spec.window is not None and spec.window.session:
        return aur_kinds(spec) if spec.keeps else session_kinds(spec)
    if spec.keeps:
        return (kept_kind(KeptLayout(spec, hashed=found_as(spec, said) == "range")),)
    return (added_kind(RowLayout(spec)) if adds(spec) else FileKind(ROWS, RowLayout(spec)),)


def open_store(
    spec: OperatorSpec,
    budget: MemoryBudget,
    seal: Seal,
    segments: list[Segment],
    watermark_us: int | None,
    known_keys: int,
    said: str = "",
) -> Store:
    """The store over the segments of one version; `known_keys` and `said` are what its manifest says."""
    name = found_as(spec, said)
    if spec.store == "auto":
        growing = GrowingBudget(budget, bound=name != "memory")
        inner = _open_layout(spec, name, growing, seal, segments, watermark_us, known_keys)
        return MovingStore(inner, growing, name)
    if spec.store == "rocksdb":
        from headrace.store.rocksdb import RocksStore  # a host without such a store need not load RocksDB

        return RocksStore(
            lambda part, put, views: _open_layout(spec, name, part, put, views, watermark_us, known_keys),
            spec,
            kinds_of(spec),
            budget,
            seal,
            segments,
        )
    if spec.store == "memory":
        inner = _open_layout(spec, name, EndlessBudget(), seal, segments, watermark_us, known_keys)
        return MemoryStore(inner, budget)
    return _open_layout(spec, name, budget, seal, segments, watermark_us, known_keys)


def _open_layout(
    spec: OperatorSpec,
    name: StoreName,
    budget: MemoryBudget,
    seal: Seal,
    segments: list[Segment],
    watermark_us: int | None,
    known_keys: int,
) -> Store:
    if spec.window is not None and spec.window.session:
        opened_session = AurStore if spec.keeps else SessionStore
        return opened_session(spec, budget, seal, segments, watermark_us, known_keys)
    if spec.keeps:
        opened = open_range if name == "range" else open_aar
        return opened(spec, budget, seal, segments, watermark_us)
    if adds(spec):
        return FinalStore(spec, budget, seal, segments, watermark_us)
    return RmwStore(spec, budget, seal, segments, watermark_us, known_keys)
