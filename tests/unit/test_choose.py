"""Protects the choice of a store: the table is whole, and what cannot be is refused with what can."""

from __future__ import annotations

import itertools

import pytest

from headrace.errors import QueryError
from headrace.spark.marks import append, pattern_of, point_update, range_read
from headrace.store.choose import NAMES, TABLE, checked, choose, named_stores


@pytest.mark.parametrize(("work", "window"), TABLE)
def test_every_name_is_taken_or_refused_with_the_possible_ones(work: str, window: str) -> None:
    assert choose(work, window).store == TABLE[work, window].stores[0]
    stores = named_stores(TABLE[work, window])
    for name, by in itertools.product(NAMES[1:], ("said", "setting")):
        if name in stores:
            assert choose(work, window, **{by: name}).store == name
        else:
            with pytest.raises(QueryError, match=f"possible here: auto, {', '.join(stores)}"):
                choose(work, window, **{by: name})


@pytest.mark.parametrize("work", ["keep", "apply", "join"])
def test_rows_are_not_kept_without_a_window(work: str) -> None:
    with pytest.raises(QueryError, match=r"needs a window"):
        choose(work, "none")


def test_the_operator_overrules_the_mark_and_the_mark_the_setting() -> None:
    marked = choose("keep", "fixed", marked="range_read", setting="aar")
    assert (marked.store, marked.reason) == ("range", "the function is marked @hr.range_read")
    said = choose("keep", "fixed", said="aar", marked="range_read", setting="range")
    assert (said.store, said.reason) == ("aar", ".store('aar') says so")
    setting = choose("fold", "none", setting="memory")
    assert (setting.store, setting.reason) == ("memory", "spark.headrace.store=memory says so")


def test_marks_follow_the_window() -> None:
    assert choose("keep", "fixed", marked="append").store == "aar"
    assert choose("keep", "session", marked="append").store == "aur"
    with pytest.raises(QueryError, match=r"sees whole windows(.|\n)*@hr.append, @hr.range_read"):
        choose("keep", "fixed", marked="point_update")
    with pytest.raises(QueryError, match=r"@hr.range_read: no store of that pattern"):
        choose("keep", "session", marked="range_read")


def test_a_function_without_a_word_is_observed() -> None:
    for window in ("fixed", "session"):
        assert choose("apply", window).store == "auto"
        assert "begin in memory" in choose("apply", window).reason
    assert choose("apply", "fixed", marked="range_read").store == "range"
    assert choose("apply", "session", marked="append").store == "aur"


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
