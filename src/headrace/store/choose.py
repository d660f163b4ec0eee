"""Which store an operator's state gets, and why. Pure: a table, and who may overrule it.

The operator's work and its window name the access pattern. A fold changes one row per key (RMW). Kept rows
are appended and read when their window closes: all windows together (AAR), or each on its own (AUR).
A function of the user that says nothing begins in memory, is observed, and moves (`store.migrate`).
An operator's own `.store(…)` overrules a decorated function, that overrules the setting, that the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import QueryError
from headrace.spec import OperatorSpec, StoreName

Work = Literal["fold", "keep", "apply", "join"]
WindowKind = Literal["none", "fixed", "session"]
Pattern = Literal["point_update", "append", "range_read"]
Said = Literal["auto", "rmw", "aar", "aur", "range", "memory", "rocksdb"]

NAMES: tuple[Said, ...] = ("auto", "rmw", "aar", "aur", "range", "memory", "rocksdb")
SETTING = "spark.headrace.store"


@dataclass(frozen=True)
class Row:
    """One kind of operator: the stores that can hold its state, the best first, and why it is the best."""

    stores: tuple[StoreName, ...]
    reason: str


_OBSERVED = (
    "the function does not say how it uses its rows: they begin in memory, and move to {} "
    "once they take half of their share of it"
)
TABLE: dict[tuple[Work, WindowKind], Row] = {
    ("fold", "none"): Row(
        ("rmw", "memory", "rocksdb"), "each row changes one state row of its key (point update)"
    ),
    ("fold", "fixed"): Row(
        ("rmw", "memory", "rocksdb"), "each row changes one state row of its key and slice (point update)"
    ),
    ("fold", "session"): Row(
        ("rmw", "memory", "rocksdb"), "each row changes one session of its key (point update)"
    ),
    ("keep", "fixed"): Row(
        ("aar", "range", "memory", "rocksdb"),
        "rows are kept until their window closes, and windows close together (append, aligned read)",
    ),
    ("keep", "session"): Row(
        ("aur", "memory", "rocksdb"),
        "rows are kept until their session closes, each at its own time (append, unaligned read)",
    ),
    ("apply", "fixed"): Row(
        ("auto", "aar", "range", "memory", "rocksdb"), _OBSERVED.format("aar or range")
    ),
    ("apply", "session"): Row(("auto", "aur", "memory", "rocksdb"), _OBSERVED.format("aur")),
    ("join", "fixed"): Row(
        ("aar", "range", "memory", "rocksdb"),
        "rows of both sides are kept until their window closes (append, aligned read)",
    ),
    ("join", "session"): Row(
        ("aur", "memory", "rocksdb"),
        "rows of both sides are kept until their session closes (append, unaligned read)",
    ),
}

_WORDS: dict[Work, str] = {
    "fold": "an operator that folds rows into accumulators",
    "keep": "an operator that keeps its rows until their window closes",
    "apply": "a function that sees whole windows",
    "join": "a join",
}
_WINDOWS: dict[WindowKind, str] = {
    "none": "without a window",
    "fixed": "over fixed windows",
    "session": "over sessions",
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


def work_of(spec: OperatorSpec) -> Work:
    if spec.join is not None:
        return "join"
    if spec.grouped:
        return "apply"
    return "keep" if spec.keeps else "fold"


def window_kind(spec: OperatorSpec) -> WindowKind:
    if spec.window is None:
        return "none"
    return "session" if spec.window.session else "fixed"


def choose(
    work: Work,
    window: WindowKind,
    *,
    said: Said = "auto",
    marked: Pattern | None = None,
    setting: Said = "auto",
) -> Choice:
    """The store of such an operator; raises `QueryError` where what was said cannot hold its state."""
    row = TABLE.get((work, window))
    if row is None:
        raise QueryError(
            f"{_WORDS[work]} needs a window: without one it would keep its rows for ever",
            hint="add hr.tumbling(…), hr.sliding(…) or hr.session(…)",
        )
    if said != "auto":
        return _named(said, f".store({said!r})", work, window, row)
    if marked is not None:
        return _marked(marked, work, window, row)
    if setting != "auto":
        return _named(setting, f"{SETTING}={setting}", work, window, row)
    return Choice(row.stores[0], row.reason)


def choose_for(
    spec: OperatorSpec, *, said: Said = "auto", marked: Pattern | None = None, setting: Said = "auto"
) -> Choice:
    """`choose` by what the operator is."""
    return choose(work_of(spec), window_kind(spec), said=said, marked=marked, setting=setting)


def adds(spec: OperatorSpec) -> bool:
    """Whether files have what each epoch added: a group is seen when its window ends, and never again."""
    window = spec.window
    if window is None or window.session or window.lateness_us or spec.keeps:
        return False
    return spec.emit == "final" and spec.store != "rocksdb"


def layout_of(spec: OperatorSpec) -> StoreName:
    """The store whose files state in memory is written as."""
    return named_stores(TABLE[work_of(spec), window_kind(spec)])[0]


def checked(name: object) -> Said:
    """`name` as one of the names that `.store(…)` takes."""
    for known in NAMES:
        if name == known:
            return known
    raise QueryError(f"{name!r} is not a store", hint=f"say one of {', '.join(NAMES)}")


def _named(store: StoreName, by: str, work: Work, window: WindowKind, row: Row) -> Choice:
    if store not in row.stores:
        raise QueryError(
            f"{by}: the {store} store cannot hold the state of {_WORDS[work]} {_WINDOWS[window]}",
            hint=f"possible here: auto, {', '.join(named_stores(row))}",
        )
    return Choice(store, f"{by} says so")


def named_stores(row: Row) -> tuple[StoreName, ...]:
    """The stores of a row that a user can name, beside auto."""
    return tuple(store for store in row.stores if store != "auto")


def _marked(pattern: Pattern, work: Work, window: WindowKind, row: Row) -> Choice:
    fitting = [store for store in row.stores if store in _STORES_OF[pattern]]
    if not fitting:
        reason = (
            "the function sees whole windows, so its rows must be kept as they are"
            if pattern == "point_update"
            else f"no store of that pattern holds the state of {_WORDS[work]} {_WINDOWS[window]}"
        )
        raise QueryError(
            f"@hr.{pattern}: {reason}",
            hint=f"take the decorator off, or say one of {_patterns(row)}",
        )
    return Choice(fitting[0], f"the function is marked @hr.{pattern}")


def _patterns(row: Row) -> str:
    fitting = [f"@hr.{name}" for name, stores in _STORES_OF.items() if set(stores) & set(row.stores)]
    return ", ".join(fitting)
