"""`Progress`: the batches of a query's operators as records, a pandas frame or a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.coordinator.progress import BatchProgress
from headrace.errors import QueryError, did_you_mean
from headrace.monitor.picture.plot import plot_svg
from headrace.monitor.records import Record

if TYPE_CHECKING:
    import pandas as pd

_NESTED = ("spans", "parts")


class NoOperator(QueryError, KeyError):
    """A query has no operator of this name, or it has no batch yet."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class Progress(dict[str, list[BatchProgress]]):
    """The batches of each Headrace operator of a query, oldest first, by the operator's name.

    Examples
    --------
    >>> import headrace as hr
    >>> run = hr.progress(query)
    >>> run["totals"][-1].rows_in
    2
    >>> int(run.toPandas()["rows_in"].sum())
    5
    >>> run.plot().save(f"{folder}/run.svg").name
    'run.svg'
    """

    def __missing__(self, name: str) -> list[BatchProgress]:
        known = ", ".join(self) or "none yet: no batch has ended"
        raise NoOperator(
            f"no operator {name!r} has records",
            hint=f"{did_you_mean(name, self, after=' ')}known are: {known}",
        )

    def toPandas(self) -> pd.DataFrame:  # noqa: N802
        """All batches as one frame, a row per operator and batch.

        Returns
        -------
        pandas.DataFrame
            The columns of `BatchProgress`, after `operator`; `started`, `ended` and `watermark` are
            timestamps in UTC, `seconds` and `rows_per_s` are computed.
        """
        import pandas as pd

        names = [field.name for field in fields(BatchProgress) if field.name not in _NESTED]
        rows = [
            {
                "operator": operator,
                **{name: getattr(batch, name) for name in names},
                "seconds": batch.seconds,
                "rows_per_s": batch.rows_per_s,
            }
            for operator, batches in self.items()
            for batch in batches
        ]
        frame = pd.DataFrame(rows, columns=["operator", *names, "seconds", "rows_per_s"])
        for name, column in (
            ("started", "started_ms"),
            ("ended", "ended_ms"),
            ("watermark", "watermark_ms"),
        ):
            frame[name] = pd.to_datetime(frame[column], unit="ms", utc=True)
        return frame

    def plot(self) -> Plot:
        """A picture of the run: rows per second, the time of batches by phase, memory.

        Returns
        -------
        Plot
            An SVG, which a notebook shows; `.save(path)` writes it.
        """
        return Plot(plot_svg(self))


class Plot:
    """An SVG picture."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file."""
        target = Path(path)
        target.write_text(self.svg, encoding="utf-8")
        return target

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Plot({len(self.svg)} bytes of SVG; .save(path) writes it)"


def progress_of(records: Iterable[Record]) -> Progress:
    """The batches that records of a history have; a later record of a batch replaces the earlier one."""
    by_operator: dict[str, dict[int, BatchProgress]] = {}
    for record in records:
        if record["kind"] == "batch":
            batch = BatchProgress.of(record["progress"])
            by_operator.setdefault(record["operator"], {})[batch.batch] = batch
    return Progress(_sorted(by_operator))


def _sorted(by_operator: Mapping[str, Mapping[int, BatchProgress]]) -> dict[str, Any]:
    return {name: [batches[number] for number in sorted(batches)] for name, batches in by_operator.items()}
