"""The processors of the benchmark; they run unchanged in both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

COUNTED = "key bigint, n bigint"


class Count(StatefulProcessor):  # type: ignore[misc]
    """Exists, get and update of one value per key."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = sum(1 for _ in rows)
        if self.count.exists():
            n += self.count.get()[0]
        self.count.update((n,))
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        pass


class CountFrames(Count):
    """The same over pandas frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        n = sum(len(frame) for frame in rows)
        if self.count.exists():
            n += self.count.get()[0]
        self.count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})


class Append(Count):
    """One append to a list per row."""

    def init(self, handle: Any) -> None:
        self.values = handle.getListState("values", "v bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = 0
        for row in rows:
            self.values.appendValue((row.amount,))
            n += 1
        yield Row(key=key[0], n=n)


class Update(Count):
    """One read and one update of a map per row; the map's keys are not known before."""

    def init(self, handle: Any) -> None:
        self.totals = handle.getMapState("totals", "k bigint", "v bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = 0
        for row in rows:
            name = (row.amount % 10,)
            before = self.totals.getValue(name)
            self.totals.updateValue(name, ((before[0] if before else 0) + 1,))
            n += 1
        yield Row(key=key[0], n=n)


def count_group(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """The count of `CountFrames` for `applyInPandasWithState`."""
    import pandas as pd

    n = sum(len(frame) for frame in frames)
    if state.exists:
        n += state.get[0]
    state.update((n,))
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


def add_in_arrow(rows: Any, state: Any) -> Any:
    """A running sum for `updateInArrow`."""
    import pyarrow as pa

    both = pa.concat_tables([state, rows.select(["key", "amount"]).rename_columns(["key", "n"])])
    totals = both.group_by("key").aggregate([("n", "sum")]).rename_columns(["key", "n"])
    return totals, totals
