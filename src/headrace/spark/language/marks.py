"""Decorators by which a user's function declares how it uses its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.plan.choice import Pattern

MARK = "__headrace_pattern__"
F = TypeVar("F", bound=Callable[..., Any])


def point_update(func: F) -> F:
    """Declare that a function changes one small value per key, row by row.

    Parameters
    ----------
    func : callable
        The function to mark; it is returned as it is.

    Returns
    -------
    callable
        The same function. It fits ``updateInArrow`` and ``updateInPandas``. A function over whole windows
        (``applyInArrow``, ``applyInPandas``) cannot be one, and is refused when the query is built.

    Examples
    --------
    >>> import headrace as hr
    >>> @hr.point_update
    ... def latest(key, table):
    ...     return table
    """
    return _marked(func, "point_update")


def append(func: F) -> F:
    """Declare that a function reads each window's rows once, when the window closes.

    Parameters
    ----------
    func : callable
        The function to mark; it is returned as it is.

    Returns
    -------
    callable
        The same function. Its rows are appended to a file per time slice (``aar``), or per session to a log
        (``aur``). State rows that a marked function of ``updateInArrow`` or ``updateInPandas`` returns are
        added to those of their keys.

    Examples
    --------
    >>> import headrace as hr
    >>> @hr.append
    ... def spread(table):
    ...     return table
    """
    return _marked(func, "append")


def range_read(func: F) -> F:
    """Declare that a function reads its rows by ranges of event time.

    Parameters
    ----------
    func : callable
        The function to mark; it is returned as it is.

    Returns
    -------
    callable
        The same function. Its rows are kept in the order of event time (``range``). ``updateInArrow`` and
        ``updateInPandas`` refuse it: their functions get all state rows of their keys.

    Examples
    --------
    >>> import headrace as hr
    >>> @hr.range_read
    ... def history(table):
    ...     return table
    """
    return _marked(func, "range_read")


def pattern_of(func: Callable[..., Any] | None) -> Pattern | None:
    """What the function was marked with."""
    pattern: Pattern | None = getattr(func, MARK, None)
    return pattern


def _marked(func: F, pattern: Pattern) -> F:
    setattr(func, MARK, pattern)
    return func
