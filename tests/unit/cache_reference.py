"""Plain caches of keys, one key at a time: what the policies of tables must come to.

A sweep removes entries until `low` are left, as a table's eviction does. Entries used since the last
`clean` stay, as dirty rows do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class PlainCache:
    """Counts hits of a trace; a subclass orders the entries that leave."""

    marks: dict[int, int] = field(default_factory=dict)  # by key; the order of the dict is that of arrival
    dirty: set[int] = field(default_factory=set)
    hits: int = 0
    uses: int = 0

    def use(self, key: int, time: int) -> None:
        self.uses += 1
        self.hits += key in self.marks
        self.touch(key, time)
        self.dirty.add(key)

    def expect(self, key: int, time: int) -> None:
        """A hint."""

    def touch(self, key: int, time: int) -> None:
        raise NotImplementedError

    def victims(self) -> Iterable[int]:
        raise NotImplementedError

    def clean(self) -> None:
        self.dirty.clear()

    def sweep(self, low: int) -> None:
        for key in self.victims():
            if len(self.marks) <= low:
                return
            del self.marks[key]


class PlainTimes(PlainCache):
    """The smallest time leaves first."""

    def touch(self, key: int, time: int) -> None:
        self.marks[key] = max(time, self.marks.get(key, time))

    def expect(self, key: int, time: int) -> None:
        if key in self.marks:
            self.touch(key, time)

    def victims(self) -> Iterable[int]:
        return sorted((key for key in self.marks if key not in self.dirty), key=self.marks.__getitem__)


class PlainLru(PlainCache):
    """The key used longest ago leaves first."""

    def touch(self, key: int, time: int) -> None:
        self.marks.pop(key, None)
        self.marks[key] = time

    def victims(self) -> Iterable[int]:
        return [key for key in self.marks if key not in self.dirty]


class PlainClock(PlainCache):
    """Keys in a queue; one that was used since it queued goes to the end once."""

    def touch(self, key: int, time: int) -> None:
        self.marks[key] = 1 if key in self.marks else 0

    def victims(self) -> Iterable[int]:
        while clean := [key for key in self.marks if key not in self.dirty]:
            for key in clean:
                if self.marks[key]:
                    del self.marks[key]
                    self.marks[key] = 0
                else:
                    yield key
