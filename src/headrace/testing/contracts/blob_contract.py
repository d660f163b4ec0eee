"""The contract of every `Blobs`: a new location inherits `BlobsContract` and provides a `blobs` fixture."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.blob.base import Blobs
from headrace.errors import AlreadyExists, BlobMissing, StateMissing

BAD_NAMES = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    "..",
    "a/../b",
    ".",
    "a/./b",
    ".hidden",
    "a/.hidden",
    "a\\b",
    "a\0b",
]


class BlobsContract:
    """Inherit and override `blobs`."""

    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError

    def test_what_was_put_is_read(self, blobs: Blobs) -> None:
        blobs.put_if_absent("q/o/p0/x", b"bytes\0\xff")
        assert blobs.get("q/o/p0/x") == b"bytes\0\xff"
        assert blobs.size("q/o/p0/x") == 7

    def test_an_empty_blob_is_a_blob(self, blobs: Blobs) -> None:
        blobs.put_if_absent("empty", b"")
        assert blobs.get("empty") == b""
        assert blobs.size("empty") == 0
        assert blobs.list("") == ["empty"]

    def test_a_taken_name_keeps_its_bytes(self, blobs: Blobs, tmp_path: Path) -> None:
        blobs.put_if_absent("x", b"first")
        with pytest.raises(AlreadyExists):
            blobs.put_if_absent("x", b"second")
        late = tmp_path / "late"
        late.write_bytes(b"third")
        with pytest.raises(AlreadyExists):
            blobs.put_file("x", late)
        assert blobs.get("x") == b"first"
        assert late.read_bytes() == b"third", "a write that was not applied leaves its source"

    def test_a_file_is_moved_into_place(self, blobs: Blobs, tmp_path: Path) -> None:
        finished = tmp_path / "finished"
        finished.write_bytes(b"s" * 10_000)
        blobs.put_file("p0/segments/s", finished)
        assert not finished.exists()
        assert blobs.get("p0/segments/s") == b"s" * 10_000

    def test_a_staged_file_is_hidden_until_it_is_put(self, blobs: Blobs) -> None:
        staged, other = blobs.staging("p0/segments/s"), blobs.staging("p0/segments/s")
        assert staged != other
        staged.write_bytes(b"rows")
        assert blobs.list("") == []
        blobs.sweep("p0/")
        blobs.put_file("p0/segments/s", staged)
        assert blobs.list("") == ["p0/segments/s"]
        assert blobs.get("p0/segments/s") == b"rows"
        assert not staged.exists()

    def test_an_absent_name_is_missing(self, blobs: Blobs) -> None:
        blobs.put_if_absent("a/b", b"")
        for name in ("a/c", "nowhere/c", "a/b/c"):
            with pytest.raises(BlobMissing, match="does not exist"):
                blobs.get(name)
            with pytest.raises(StateMissing):
                blobs.size(name)

    def test_ranges_end_where_the_blob_ends(self, blobs: Blobs) -> None:
        data = bytes(range(256)) * 40
        blobs.put_if_absent("a/b", data)
        ranges = [(9_000, 500), (0, 1), (10_200, 100), (10_240, 8), (20_000, 8), (512, 4096)]
        expected = [data[start : start + length] for start, length in ranges]
        assert [blobs.get_range("a/b", *each) for each in ranges] == expected
        assert blobs.get_ranges("a/b", ranges) == expected
        assert blobs.get_ranges("a/b", ranges[:3]) == expected[:3]
        assert blobs.ranges_at_once >= 1
        with pytest.raises(BlobMissing):
            blobs.get_ranges("a/c", ranges[:3])

    def test_a_deleted_name_is_free_again(self, blobs: Blobs) -> None:
        blobs.put_if_absent("a/x", b"1")
        blobs.delete("a/x")
        blobs.delete("a/x")
        blobs.delete("never/there")
        assert blobs.list("") == []
        blobs.put_if_absent("a/x", b"2")
        assert blobs.get("a/x") == b"2"

    def test_lists_are_sorted_and_by_prefix(self, blobs: Blobs) -> None:
        names = ["a/v10", "a/v02", "a/v01-x", "a/sub/v01", "b/v01", "ab"]
        for name in names:
            blobs.put_if_absent(name, b"")
        assert blobs.list("") == sorted(names)
        assert blobs.list("a/") == ["a/sub/v01", "a/v01-x", "a/v02", "a/v10"]
        assert blobs.list("a/v0") == ["a/v01-x", "a/v02"]
        assert blobs.list("a") == ["a/sub/v01", "a/v01-x", "a/v02", "a/v10", "ab"]
        assert blobs.list("nowhere/") == []

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_a_name_cannot_leave_its_location(self, blobs: Blobs, name: str) -> None:
        for call in (blobs.get, blobs.size, blobs.delete, blobs.local_path):
            with pytest.raises(ValueError, match="not a blob name"):
                call(name)
        with pytest.raises(ValueError, match="not a blob name"):
            blobs.put_if_absent(name, b"")

    @pytest.mark.parametrize("prefix", ["/", "../", "a/../../", "/etc/", "a//"])
    def test_a_list_cannot_leave_its_location(self, blobs: Blobs, prefix: str) -> None:
        with pytest.raises(ValueError, match="not a blob name"):
            blobs.list(prefix)

    def test_of_many_writers_one_wins(self, blobs: Blobs) -> None:
        def write(writer: int) -> bool:
            try:
                blobs.put_if_absent("a/b/contested", str(writer).encode())
            except AlreadyExists:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(write, range(32)))
        assert won.count(True) == 1
        assert blobs.get("a/b/contested") == str(won.index(True)).encode()
        assert blobs.list("") == ["a/b/contested"]

    def test_a_local_path_leads_to_the_bytes(self, blobs: Blobs) -> None:
        blobs.put_if_absent("a/x", b"here")
        path = blobs.local_path("a/x")
        assert path is None or path.read_bytes() == b"here"
