"""One side's turn in a benchmark: a process of its own, with a Spark or a store of its own.

A session that is opened after another one in the same process has the same JVM, which has compiled what
the other one ran. And what is to be compared should run minutes apart: this machine's speed changes by a
quarter within half an hour.
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
    """Calls functions with what one side has opened, in its process; one at a time."""

    def __init__(
        self, opens: Callable[[], AbstractContextManager[Any]], variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` are those of the process's environment that it does not inherit."""
        self._process = ProcessPoolExecutor(1, get_context("spawn"), _enter, (opens,))
        with _environment(variables or {}):
            self._process.submit(_call, _nothing).result()  # the process has started, and has opened

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            self._process.submit(_Here.leave)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """What `function(opened, *args)` returns; all of it must be picklable, errors too."""
        return self._process.submit(_call, function, *args).result()


class _Here:
    """What this process has open."""

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
    _Here.opened = _Here.stack.enter_context(opens())


def _call(function: Callable[..., T], *args: Any) -> T:
    return function(_Here.opened, *args)
