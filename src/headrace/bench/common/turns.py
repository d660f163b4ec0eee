"""One side's turn in a benchmark: its own process, with its own Spark or store.

A Spark session that is opened after another one in the same process has the same JVM, which has compiled
the other one's code. Measurements that are compared should run within minutes: the machine's speed changes
by a quarter within half an hour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing import get_context
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Turn:
    """Calls functions on the object that one side has opened, in its process; one at a time."""

    def __init__(
        self, opens: Callable[[], AbstractContextManager[Any]], variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` are added to the environment of the process."""
        self._process = ProcessPoolExecutor(1, get_context("spawn"), _enter, (opens,))
        with _environment(variables or {}):
            # waits until the process has started and opened its side
            self._process.submit(_call, _nothing).result()

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            self._process.submit(_Opened.leave)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Returns `function(opened, *args)`; arguments, result and errors must be picklable."""
        return self._process.submit(_call, function, *args).result()


class _Opened:
    """The object that this process has open."""

    opened: Any = None
    stack = ExitStack()

    @classmethod
    def leave(cls) -> None:
        cls.stack.close()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _nothing(_opened: Any) -> None:
    pass


def _enter(opens: Callable[[], AbstractContextManager[Any]]) -> None:
    _Opened.opened = _Opened.stack.enter_context(opens())


def _call(function: Callable[..., T], *args: Any) -> T:
    return function(_Opened.opened, *args)
