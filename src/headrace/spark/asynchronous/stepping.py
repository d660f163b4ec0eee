"""Coroutines without a task: they run at once, and become tasks when they wait.

A coroutine that never waits costs one `send`. asyncio lets other libraries run coroutines this way; until a
coroutine waits, a stand-in is asyncio's current task, so that `asyncio.timeout` and task groups work.
Threads: the thread of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any


class StandIn:
    """The current task of coroutines that have not waited; passes calls on to the task that follows."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._cancels = 0

    def follow(self, task: asyncio.Task[Any]) -> None:
        """The coroutine has become a task."""
        self._task = task
        for _ in range(self._cancels):
            task.cancel()

    def cancel(self, msg: Any = None) -> bool:
        if self._task is None:
            self._cancels += 1
            return True
        return self._task.cancel(msg)

    def cancelling(self) -> int:
        return self._cancels if self._task is None else self._task.cancelling()

    def uncancel(self) -> int:
        if self._task is not None:
            return self._task.uncancel()
        self._cancels = max(self._cancels - 1, 0)
        return self._cancels

    def done(self) -> bool:
        return self._task is not None and self._task.done()

    def __getattr__(self, name: str) -> Any:
        task = self.__dict__.get("_task")
        if task is None:
            raise AttributeError(f"this coroutine is not a task yet and has no {name}")
        return getattr(task, name)


class Stepper:
    """A context around coroutines that run without a task; makes a task of one that waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._stand_in = loop, StandIn()

    def __enter__(self) -> None:
        asyncio._enter_task(self._loop, self._stand_in)  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        asyncio._leave_task(self._loop, self._stand_in)  # type: ignore[arg-type]

    def task(self, coroutine: Coroutine[Any, Any, Any], awaited: Any) -> asyncio.Task[Any]:
        """The rest of a coroutine that waits for `awaited`, as a task."""
        task = self._loop.create_task(_continue(coroutine, awaited))
        self._stand_in.follow(task)
        self.__exit__()
        self._stand_in = StandIn()
        self.__enter__()
        return task


async def _continue(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Any:
    return await _Rest(coroutine, awaited)


class _Rest:
    """The rest of a coroutine that waits for `awaited`."""

    __slots__ = ("_awaited", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], awaited: Any) -> None:
        self._coroutine, self._awaited = coroutine, awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, awaited = self._coroutine, self._awaited
        while True:
            try:
                value = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                step: Callable[[], Any] = partial(coroutine.throw, error)
            else:
                step = partial(coroutine.send, value)
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
