"""Protects what `headrace state branch` copies: the state of a query, and no record about its files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace.blob.files import FileBlobs
from headrace.checkpoint.keep.condemned import condemn
from headrace.checkpoint.keep.dropped import drop_query
from headrace.checkpoint.keep.pins import put_pin
from headrace.checkpoint.records import OperatorRecord
from headrace.edit.branch import _copy_operator
from headrace.format.names import operator_prefix, segment_name
from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec

WORK = Fold((Accumulator("count", None, "int64"),))
SPEC = OperatorSpec("o", (Field("k0", "int64", "k"),), (), WORK, None, "changes", False, (), 1)


def test_pins_and_condemned_files_stay_with_the_original(tmp_path: Path) -> None:
    folder, prefix = tmp_path / "state", operator_prefix("original", "o")
    blobs = FileBlobs.open(folder, create=True)
    segment = f"p0000/{segment_name(3, 1, 1, 0)}"
    blobs.put_if_absent(f"{prefix}/{segment}", b"abc")
    put_pin(blobs, prefix, "savepoint", [f"{prefix}/{segment}"])
    with condemn(blobs, prefix, [f"{prefix}/{segment}"]):
        pass  # its collector dies
    state: Any = SimpleNamespace(
        query="original",
        checkpoint=SimpleNamespace(files=SimpleNamespace(root=str(tmp_path / "checkpoint"))),
        open_location=lambda location, create: FileBlobs.open(Path(location), create=create),
    )
    _copy_operator(state, OperatorRecord(str(folder), SPEC, (3,)), tmp_path / "copy", "copy")
    assert blobs.list("copy/") == [f"{operator_prefix('copy', 'o')}/{segment}"]
    assert drop_query(blobs, "copy"), "nothing keeps files of a copy"
    assert f"{prefix}/{segment}" in blobs.list("")
