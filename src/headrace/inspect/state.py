"""The state of a query, opened by its checkpoint: operators, versions, tables. No host and no Spark.

Threads: any; nothing here changes after it was opened, and storage is read anew by every call.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.records import OperatorRecord
from headrace.errors import QueryError
from headrace.format.names import home_of
from headrace.inspect.changes import Changes
from headrace.inspect.checkpoint import Checkpoint
from headrace.inspect.forms import table_spec
from headrace.inspect.selection import Instant, Selection, micros, selected_keys
from headrace.inspect.table import StateTable
from headrace.inspect.versions import chosen, published, read_manifests, readable

Window = tuple[Instant | None, Instant | None]


class State:
    """The state behind one checkpoint.

    Examples
    --------
    >>> import headrace.inspect
    >>> state = headrace.inspect.open(checkpoint)
    >>> state.operators
    ['totals']
    >>> state.versions("totals")
    [0, 1]
    >>> state.table("totals", keys={"user": "ann"}).to_pandas()
      user  n  total
    0  ann  3   13.0
    >>> state.changes("totals", from_version=0).to_arrow().num_rows
    2
    """

    def __init__(self, checkpoint: str | Path, local: Path | None = None) -> None:
        self._scratch = None if local is not None else tempfile.mkdtemp(prefix="headrace-inspect-")
        if self._scratch is not None:  # removed with the last reference where nobody calls `close`
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._locations = Locations(local or Path(self._scratch or ""))
        self.checkpoint = Checkpoint.open(checkpoint, self._locations)
        self.query = self.checkpoint.query

    @property
    def operators(self) -> list[str]:
        """The names of the operators that have a record, in alphabetical order."""
        return sorted(self.checkpoint.records())

    def record(self, operator: str) -> OperatorRecord:
        """What the checkpoint records of an operator."""
        records = self.checkpoint.records()
        if operator not in records:
            known = ", ".join(sorted(records)) or "none"
            close = get_close_matches(operator, records, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise QueryError(
                f"the checkpoint {self.checkpoint.files.root} has no operator {operator}",
                hint=f"{meant}its operators are {known}",
            )
        return records[operator]

    def blobs(self, operator: str) -> Blobs:
        """Where the operator's state is."""
        return self._locations.open(self.record(operator).location, create=False)

    def open_location(self, location: str, *, create: bool) -> Blobs:
        """A state location; only `create` makes a directory that is not there."""
        return self._locations.open(location, create=create)

    def versions(self, operator: str) -> list[int]:
        """The versions of an operator that can be read, oldest first."""
        committed = self.checkpoint.committed  # first: what is committed then is published already
        return readable(self.published(operator), committed)

    def published(self, operator: str) -> dict[int, list[str]]:
        """The names of the manifests of every version of an operator that is whole on storage."""
        layouts = self.record(operator).known_layouts
        return published(self.blobs(operator), self.query, operator, layouts)

    def table(
        self,
        operator: str,
        *,
        version: int | None = None,
        as_of_batch: int | None = None,
        keys: Mapping[str, Any] | None = None,
        window: Window | None = None,
        accumulators: bool = False,
    ) -> StateTable:
        """State of an operator as a table.

        Parameters
        ----------
        operator : str
            The operator's name.
        version : int, optional
            The batch after which state is read; the newest committed one by default.
        as_of_batch : int, optional
            Instead, the newest version up to this batch: an operator may not run in every batch.
        keys : dict, optional
            Values of key columns: ``{"user": "ann"}``, ``{"user": ["ann", "bob"]}``. Where all key columns
            are given, their rows are looked up and nothing else is read.
        window : tuple, optional
            ``(from, before)``: windows, slices or sessions that start in this stretch of time, and kept
            rows of these event times. None leaves a bound out.
        accumulators : bool
            The parts of accumulators instead of results: what `hr.write_state` can take back.

        Returns
        -------
        StateTable
            Read it with ``to_arrow()``, ``to_pandas()``, or batch by batch with ``to_batches()``.
        """
        spec, blobs = self.record(operator).spec, self.blobs(operator)
        committed = self.checkpoint.committed
        complete = self.published(operator)
        number = chosen(operator, readable(complete, committed), committed, version, as_of_batch)
        manifests = read_manifests(blobs, complete[number])
        folders = [home_of(name) for name in complete[number]]
        start, before = window or (None, None)
        selection = Selection(spec, selected_keys(table_spec(spec), keys), micros(start), micros(before))
        return StateTable(blobs, self.query, spec, manifests, folders, selection, accumulators)

    def changes(
        self,
        operator: str,
        from_version: int,
        to_version: int | None = None,
        *,
        keys: Mapping[str, Any] | None = None,
        window: Window | None = None,
        accumulators: bool = False,
    ) -> Changes:
        """What changed in an operator's state between two versions.

        Parameters
        ----------
        operator : str
            The operator's name.
        from_version, to_version : int
            The older and the newer version; by default the newest committed one.
        keys, window, accumulators
            As in `table`.

        Returns
        -------
        Changes
            Rows with a leading column ``change``: ``insert``, ``update`` or ``delete``. Rows of windows
            that closed in between are deleted.
        """
        selection = {"keys": keys, "window": window, "accumulators": accumulators}
        after = self.table(operator, version=to_version, **selection)  # type: ignore[arg-type]
        if from_version > after.version:
            raise QueryError(
                f"changes from version {from_version} to {after.version} would go back in time",
                hint="give the older version first",
            )
        return Changes(self.table(operator, version=from_version, **selection), after)  # type: ignore[arg-type]

    def close(self) -> None:
        """Remove local copies of remote files."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> State:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
