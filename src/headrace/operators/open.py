"""Opens the store of an operator's state: the layout of its work, inside the wrappers that it needs."""

from __future__ import annotations

from dataclasses import replace

from headrace.cache.policy import Policy, TimestampAware
from headrace.operators.implementation import Opening
from headrace.operators.registry import computation_of, implementation_of
from headrace.plan.spec import OperatorSpec
from headrace.store.adaptive.memory import MemoryStore
from headrace.store.adaptive.migrate import MovingStore, layout_at
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files
from headrace.store.base.share import UNLIMITED, GrowingShare, Share
from headrace.store.segments.reader import Segment


def kinds_of(spec: OperatorSpec, recorded: str = "") -> tuple[FileKind, ...]:
    """The kinds of segments that the operator's store writes; the first holds its rows.

    `recorded` is the store that the manifest of the version names, if there is one.
    """
    return implementation_of(spec).kinds(spec, layout_at(spec, recorded))


def open_store(
    spec: OperatorSpec,
    budget: Share,
    files: Files,
    segments: list[Segment],
    watermark_us: int | None,
    known_keys: int,
    recorded: str = "",
    policy: Policy | None = None,
) -> Store:
    """The store over the segments of one version; `known_keys` and `recorded` come from its manifest.

    `policy` decides which rows leave memory first.
    """
    name, opened = layout_at(spec, recorded), implementation_of(spec).open
    opening = Opening(
        spec, name, budget, files, segments, watermark_us, known_keys, policy or TimestampAware()
    )
    if spec.store == "auto":
        growing = GrowingShare(budget, bounded=name != "memory")
        return MovingStore(opened(replace(opening, budget=growing)), growing, name, computation_of)
    if spec.store == "rocksdb":
        # A host without such a store need not load RocksDB.
        from headrace.store.rocksdb.store import RocksStore

        def over_views(part: Share, put: Files, views: list[Segment]) -> Store:
            return opened(replace(opening, budget=part, files=put, segments=views))

        return RocksStore(over_views, spec, kinds_of(spec), budget, files, segments)
    if spec.store == "memory":
        return MemoryStore(opened(replace(opening, budget=UNLIMITED)), budget)
    return opened(opening)
