"""Protects the steps from a savepoint to the checkpoint of a branch. After a kill before any write a
repeated call makes the same branch, and a plain start is refused. A branch that is given up leaves nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_collect_machine import MortalBlobs
from test_savepoint_machine import ALIVE, World, saved

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import stored_record
from headrace.checkpoint.keep.dropped import drop_query
from headrace.checkpoint.keep.savepoint import Savepoint, delete, make, names_of
from headrace.checkpoint.records import refuse_unfinished_branch
from headrace.edit.from_savepoint import MARKER, begin_branch, begun_from, resolve
from headrace.errors import QueryError, StateMissing

SPARK = (("sources/0/0", "v1\n{}"), ("offsets/2", "v1\n{}\n7"), ("commits/2", "v1\n{}"))
ADDRESS = "/state#s"


class MortalFiles(LocalFiles):
    """Files whose writes count as those of the blobs do."""

    def __init__(self, root: Path, blobs: MortalBlobs) -> None:
        super().__init__(f"file:{root}")
        self._blobs = blobs

    def put(self, name: str, text: str) -> bool:
        self._blobs.spend()
        return super().put(name, text)


def original() -> tuple[World, Savepoint]:
    world = World()
    for _ in range(3):
        world.commit(0, 3, 0)
    made = saved(world.blobs, world.queries["q0"], "s")
    savepoint = Savepoint(*(getattr(made, name) for name in list(made.__dataclass_fields__)[:-1]), SPARK)
    assert make(world.blobs, savepoint)
    return world, savepoint


@pytest.mark.parametrize("is_given_up", [False, True])
def test_killed_before_any_write(tmp_path: Path, is_given_up: bool) -> None:
    for writes in range(ALIVE):
        world, savepoint = original()
        blobs, folder = world.blobs, tmp_path / f"{writes}"
        files, whole = MortalFiles(folder, blobs), False
        with blobs.lasting(writes):
            begin_branch(files, blobs, savepoint, ADDRESS)
            whole = True
        assert whole == begun_from(files, ADDRESS) == (folder / "metadata").exists()
        record = stored_record(files, "o")
        if record is not None and not whole:
            with pytest.raises(QueryError, match="unfinished branch"):
                refuse_unfinished_branch(record, "an id of Spark's", str(folder))
        if is_given_up and (folder / MARKER).exists():
            drop_query(blobs, json.loads((folder / MARKER).read_text().splitlines()[1])["query"])
            check_given_back(world, savepoint)
        elif not is_given_up:
            query = begin_branch(files, blobs, savepoint, ADDRESS)
            assert json.loads((folder / "metadata").read_text()) == {"id": query}
            assert {name: (folder / name).read_text() for name, _ in SPARK} == dict(SPARK)
            branch = stored_record(files, "o")
            assert branch is not None
            refuse_unfinished_branch(branch, query, str(folder))
            assert begin_branch(files, blobs, savepoint, ADDRESS) == query
            drop_query(blobs, query)
            check_given_back(world, savepoint)
        if whole:
            return


def check_given_back(world: World, savepoint: Savepoint) -> None:
    delete(world.blobs, savepoint)
    drop_query(world.blobs, "q0")
    assert world.blobs.list("") == []


def test_a_savepoint_killed_before_any_write_starts_nothing() -> None:
    for writes in range(ALIVE):
        world = World()
        world.commit(0, 3, 0)
        savepoint = saved(world.blobs, world.queries["q0"], "s")
        with world.blobs.lasting(writes):
            make(world.blobs, savepoint)
        if names_of(world.blobs).get(("q0", "s"), False):
            return
        with pytest.raises((QueryError, StateMissing), match=r"no savepoint s|is unfinished"):
            resolve(ADDRESS, lambda _, blobs=world.blobs: blobs)
        check_given_back(world, savepoint)


def test_another_savepoint_or_query_is_refused(tmp_path: Path) -> None:
    world, savepoint = original()
    begin_branch(LocalFiles(f"file:{tmp_path}"), world.blobs, savepoint, ADDRESS)
    world.commit(0, 3, 0)
    other = saved(world.blobs, world.queries["q0"], "t")
    assert make(world.blobs, other)
    before = world.blobs.list("")
    with pytest.raises(QueryError, match="is that of another query"):
        begin_branch(LocalFiles(f"file:{tmp_path}"), world.blobs, other, "/state#t")
    (tmp_path / "used" / "offsets").mkdir(parents=True)
    (tmp_path / "used" / "offsets" / "0").write_text("v1")
    with pytest.raises(QueryError, match="is that of another query"):
        begin_branch(LocalFiles(f"file:{tmp_path}/used"), world.blobs, other, "/state#t")
    assert world.blobs.list("") == before
