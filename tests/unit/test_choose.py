"""Protects the choice of a store: the table is whole, and what cannot be is refused with what can."""

from __future__ import annotations

import itertools

import pytest

from headrace.errors import QueryError
from headrace.plan.choice import NAMES, checked, choose
from headrace.plan.spec import Fold, Grouped, Holistic, WindowJoin, Work
from headrace.plan.work.cells import Cells
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.changes.top import Top
from headrace.plan.work.dedup import Dedup
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.plan.work.registry import WORKS
from headrace.spark.language.marks import append, pattern_of, point_update, range_read

FOLD, KEEP, JOIN, APPLY = Fold(), Holistic(()), WindowJoin("inner", (), ()), Grouped()
CHANGING = (Retracting(), Top(1, ()), Distinct(FOLD, ()))
WORK = (FOLD, KEEP, JOIN, APPLY, Cells(), Dedup(), *CHANGING, StreamJoin("inner", (), ()))
KINDS = [(work, window) for work in WORK for window in ("none", "fixed", "session")]


def test_the_kinds_of_work_here_are_all_that_there_are() -> None:
    assert {type(work) for work, _ in KINDS} == set(WORKS.values())


@pytest.mark.parametrize(("work", "window"), [kind for kind in KINDS if kind[0].stores(kind[1])])
def test_every_name_is_taken_or_refused_with_the_possible_ones(work: Work, window: str) -> None:
    fitting = work.stores(window)
    assert choose(work, window).store == fitting.names[0]
    stores = [name for name in fitting.names if name != "auto"]
    for name, by in itertools.product(NAMES[1:], ("named", "setting")):
        if name in stores:
            assert choose(work, window, **{by: name}).store == name
        else:
            with pytest.raises(QueryError, match=f"possible here: auto, {', '.join(stores)}"):
                choose(work, window, **{by: name})


@pytest.mark.parametrize("work", [KEEP, APPLY, JOIN])
def test_rows_are_not_kept_without_a_window(work: Work) -> None:
    with pytest.raises(QueryError, match=r"needs a window"):
        choose(work, "none")


def test_the_operator_overrules_the_mark_and_the_mark_the_setting() -> None:
    marked = choose(KEEP, "fixed", marked="range_read", setting="aar")
    assert (marked.store, marked.reason) == ("range", "the function is marked @hr.range_read")
    named = choose(KEEP, "fixed", named="aar", marked="range_read", setting="range")
    assert (named.store, named.reason) == ("aar", "chosen by .store('aar')")
    setting = choose(FOLD, "none", setting="memory")
    assert (setting.store, setting.reason) == ("memory", "chosen by spark.headrace.store=memory")


def test_marks_follow_the_window() -> None:
    assert choose(KEEP, "fixed", marked="append").store == "aar"
    assert choose(KEEP, "session", marked="append").store == "aur"
    with pytest.raises(QueryError, match=r"sees whole windows(.|\n)*@hr.append, @hr.range_read"):
        choose(KEEP, "fixed", marked="point_update")
    with pytest.raises(QueryError, match=r"@hr.range_read: no store of that pattern"):
        choose(KEEP, "session", marked="range_read")


def test_a_function_without_a_word_is_observed() -> None:
    for window in ("fixed", "session"):
        assert choose(APPLY, window).store == "auto"
        assert "begin in memory" in choose(APPLY, window).reason
    assert choose(APPLY, "fixed", marked="range_read").store == "range"
    assert choose(APPLY, "session", marked="append").store == "aur"


def test_marks_are_on_the_function_itself() -> None:
    def plain() -> None: ...

    assert pattern_of(plain) is None
    for mark, name in ((point_update, "point_update"), (append, "append"), (range_read, "range_read")):
        assert mark(plain) is plain
        assert pattern_of(plain) == name


def test_an_unknown_name_is_refused() -> None:
    assert checked("rmw") == "rmw"
    with pytest.raises(QueryError, match=r"'redis' is not a store(.|\n)*auto, rmw"):
        checked("redis")
