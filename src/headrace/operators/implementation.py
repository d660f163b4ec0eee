"""How the host runs one kind of work: the files that its store writes, and how to open the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headrace.cache.policy import Policy
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files
from headrace.store.base.share import Share
from headrace.store.rows.groups import Computation
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.segments.reader import Segment


@dataclass(frozen=True)
class Opening:
    """Everything that a store is opened with; `store` is the layout of the segments."""

    spec: OperatorSpec
    store: StoreName
    budget: Share
    files: Files
    segments: list[Segment]
    watermark_us: int | None
    known_keys: int
    policy: Policy


class Implementation(Protocol):
    """Runs one kind of work."""

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        """The kinds of segments that the store writes; the first holds its rows."""

    def open(self, opening: Opening) -> Store:
        """The store over the segments of one version."""

    def computation(self, layout: KeptLayout) -> Computation:
        """What becomes of whole groups of kept rows in one epoch; only for work that keeps rows."""
