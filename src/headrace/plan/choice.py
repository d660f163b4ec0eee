"""Which store an operator's state gets, and why. Pure decisions.

The work and the window of an operator determine the access pattern (`Work.stores`). A fold changes one row
per key (RMW). Kept rows are appended and read when their window closes: all windows together (AAR), or
each on its own (AUR). Rows of an unmarked user function begin in memory and move later (`store.adaptive`).
Precedence: the operator's `.store(…)`, then the function's decorator, then the setting, then the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import QueryError
from headrace.plan.spec import OperatorSpec
from headrace.plan.window import WindowKind, kind_of
from headrace.plan.work.base import Work
from headrace.plan.work.stores import FittingStores, StoreName

Pattern = Literal["point_update", "append", "range_read"]

NAMES: tuple[StoreName, ...] = ("auto", "rmw", "aar", "aur", "range", "memory", "rocksdb")
SETTING = "spark.headrace.store"

_WINDOWS: dict[WindowKind, str] = {
    "none": "without a window",
    "fixed": "over fixed windows",
    "session": "over sessions",
    "settled": "over windows of rows in their order",
}
_STORES_OF: dict[Pattern, tuple[StoreName, ...]] = {
    "point_update": ("rmw",),
    "append": ("aar", "aur"),
    "range_read": ("range",),
}


@dataclass(frozen=True)
class Choice:
    """A store, and the sentence that explains it."""

    store: StoreName
    reason: str


def choose(
    work: Work,
    window: WindowKind,
    *,
    named: StoreName = "auto",
    marked: Pattern | None = None,
    setting: StoreName = "auto",
) -> Choice:
    """The store of such an operator; raises `QueryError` if the named store cannot hold its state."""
    fitting = work.stores(window)
    whose = f"{work.phrase} {_WINDOWS[window]}"
    if fitting is None:
        raise _impossible(work, window, whose)
    if named != "auto":
        return _named(named, f".store({named!r})", whose, fitting)
    if marked is not None:
        return _marked(marked, whose, fitting)
    if setting != "auto":
        return _named(setting, f"{SETTING}={setting}", whose, fitting)
    return Choice(fitting.names[0], fitting.reason)


def choose_for(
    spec: OperatorSpec,
    *,
    named: StoreName = "auto",
    marked: Pattern | None = None,
    setting: StoreName = "auto",
) -> Choice:
    """`choose` for an operator."""
    return choose(spec.work, kind_of(spec.window), named=named, marked=marked, setting=setting)


def adds(spec: OperatorSpec) -> bool:
    """Whether files hold what each epoch added to a group, because a group is read once: when it closes."""
    window = spec.window
    if window is None or window.session or window.lateness_us or not spec.work.adds_up:
        return False
    return spec.emit == "final" and spec.store != "rocksdb"


def layout_of(spec: OperatorSpec) -> StoreName:
    """The store whose files the memory store writes."""
    fitting = spec.work.stores(kind_of(spec.window))
    assert fitting is not None, "the operator was built with a store"
    return fitting.named[0]


def checked(name: object) -> StoreName:
    """`name` as one of the names that `.store(…)` takes."""
    for known in NAMES:
        if name == known:
            return known
    raise QueryError(f"{name!r} is not a store", hint=f"write one of {', '.join(NAMES)}")


def _impossible(work: Work, window: WindowKind, whose: str) -> QueryError:
    if window == "none":
        return QueryError(
            f"{work.phrase} needs a window: without one it would keep its rows for ever",
            hint="add hr.tumbling(…), hr.sliding(…) or hr.session(…)",
        )
    return QueryError(
        f"no store holds the state of {whose}", hint="leave the window out, or change its kind"
    )


def _named(store: StoreName, by: str, whose: str, fitting: FittingStores) -> Choice:
    if store not in fitting.names:
        raise QueryError(
            f"{by}: the {store} store cannot hold the state of {whose}",
            hint=f"possible here: auto, {', '.join(fitting.named)}",
        )
    return Choice(store, f"chosen by {by}")


def _marked(pattern: Pattern, whose: str, fitting: FittingStores) -> Choice:
    names = [store for store in fitting.names if store in _STORES_OF[pattern]]
    if not names:
        reason = (
            "the function sees whole windows, so its rows must be kept as they are"
            if pattern == "point_update"
            else f"no store of that pattern holds the state of {whose}"
        )
        raise QueryError(
            f"@hr.{pattern}: {reason}",
            hint=f"take the decorator off, or write one of {_patterns(fitting)}",
        )
    return Choice(names[0], f"the function is marked @hr.{pattern}")


def _patterns(fitting: FittingStores) -> str:
    patterns = [f"@hr.{name}" for name, stores in _STORES_OF.items() if set(stores) & set(fitting.names)]
    return ", ".join(patterns)
