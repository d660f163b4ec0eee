"""Batches that Spark has committed: a start that runs one again has lost its query to another start.

Spark reads its commit log when a query starts. Between that and the first batch another start may have run
the batch, and its sink has the rows.
"""

from __future__ import annotations

from headrace.checkpoint.records import ReadFiles
from headrace.errors import Fenced


def refuse_committed(files: ReadFiles, batch: int) -> None:
    """Raises `Fenced` where the first batch of a start is in Spark's commit log, before any row."""
    if files.read(f"commits/{batch}") is not None:
        raise Fenced(
            f"batch {batch} is committed already: another start of the query at {files.root} has run it",
            hint="nothing to do if that start is meant; otherwise stop it, then start this again",
        )
