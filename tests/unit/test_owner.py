"""Protects the owner of a query's state: one checkpoint, which may move and may not be copied."""

from __future__ import annotations

import pytest

from headrace.blob.memory import MemoryBlobs
from headrace.checkpoint.beside.owner import claim_state, owner_of, plain_root
from headrace.checkpoint.runs import claim_run, newest_run
from headrace.errors import QueryError


def test_a_claim_is_once_for_all_until_the_checkpoint_is_gone() -> None:
    blobs = MemoryBlobs()
    claim_state(blobs, "q", "file:/a", lambda owner: True)
    claim_state(blobs, "q", "file:///a/", lambda owner: True)
    assert owner_of(blobs, "q") == (1, "file:/a")
    with pytest.raises(QueryError, match="file:/b is a copy of file:/a"):
        claim_state(blobs, "q", "file:/b", lambda owner: owner == "file:/a")
    claim_state(blobs, "q", "file:/b", lambda owner: False)
    assert owner_of(blobs, "q") == (2, "file:/b")
    with pytest.raises(QueryError, match="file:/a is a copy of file:/b"):
        claim_state(blobs, "q", "file:/a", lambda owner: owner == "file:/b")
    assert owner_of(blobs, "other") == (0, None)


def test_owners_are_no_runs() -> None:
    blobs = MemoryBlobs()
    claim_state(blobs, "q", "file:/a", lambda owner: True)
    assert newest_run(blobs, "q") == 0
    assert claim_run(blobs, "q", "start") == 1


@pytest.mark.parametrize(
    ("root", "plain"),
    [("file:///a/b/", "file:/a/b"), ("/a/b", "file:/a/b"), ("hdfs://h/a/", "hdfs://h/a")],
)
def test_one_spelling_per_checkpoint(root: str, plain: str) -> None:
    assert plain_root(root) == plain
