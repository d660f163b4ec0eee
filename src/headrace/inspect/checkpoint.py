"""A checkpoint without Spark: the query's id, its operators' records, the batches that Spark committed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations, is_object_store
from headrace.checkpoint.beside.record_log import stored_records
from headrace.checkpoint.records import OperatorRecord, ReadFiles
from headrace.errors import BlobMissing, QueryError, StateCorrupt, StateMissing

COMMITS, OFFSETS, METADATA = "commits", "offsets", "metadata"


@dataclass(frozen=True)
class FolderFiles:
    """A checkpoint on this machine's file systems."""

    root: str

    def read(self, name: str) -> str | None:
        try:
            return (Path(self.root) / name).read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        try:
            names = sorted(path.name for path in (Path(self.root) / folder).iterdir())
        except FileNotFoundError:
            return []
        return [name for name in names if not name.startswith(".")]


@dataclass(frozen=True)
class ObjectFiles:
    """A checkpoint in an object store."""

    blobs: Blobs

    @property
    def root(self) -> str:
        return self.blobs.root

    def read(self, name: str) -> str | None:
        try:
            return self.blobs.get(name).decode("utf-8", "surrogateescape")
        except BlobMissing:
            return None

    def list(self, folder: str) -> list[str]:
        names = (name.removeprefix(f"{folder}/") for name in self.blobs.list(f"{folder}/"))
        return sorted({name.partition("/")[0] for name in names if not name.startswith(".")})


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint records."""

    files: ReadFiles

    @classmethod
    def open(cls, checkpoint: str | Path, locations: Locations) -> Checkpoint:
        """The checkpoint at a path, a `file:`, `s3://` or `az://` address."""
        written = str(checkpoint).replace("s3a://", "s3://", 1)
        if is_object_store(written):
            return cls(ObjectFiles(locations.open(written, create=False)))
        if "://" in written and not written.startswith("file://"):
            raise QueryError(
                f"the checkpoint {checkpoint} is on a file system that only Hadoop reaches",
                hint="copy its metadata, commits and headrace-operators to a local folder, and open that",
            )
        path = Path(written.removeprefix("file://").removeprefix("file:"))
        return cls(FolderFiles(str(path.absolute())))

    @property
    def query(self) -> str:
        """The id of the query."""
        text = self.files.read(METADATA)
        if text is None:
            raise StateMissing(
                f"{self.files.root} is not the checkpoint of a streaming query: it has no metadata",
                hint="name the directory that the query has as its checkpointLocation",
            )
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise StateCorrupt(
                f"{self.files.root}/{METADATA} is damaged: {error}", hint="bring it back from a backup"
            ) from None

    @property
    def committed(self) -> int | None:
        """The newest batch that Spark has committed."""
        return max(self.batches(COMMITS), default=None)

    def batches(self, folder: str) -> list[int]:
        """The batches that have an entry in one of Spark's logs."""
        return sorted(int(name) for name in self.files.list(folder) if name.isdecimal())

    def planned_ms(self, batch: int) -> int | None:
        """When Spark planned a batch, in milliseconds since 1970; None where its log has no such batch."""
        lines = (self.files.read(f"{OFFSETS}/{batch}") or "").splitlines()
        try:
            return int(json.loads(lines[1])["batchTimestampMs"])
        except (IndexError, ValueError, KeyError, TypeError):
            return None

    def records(self) -> dict[str, OperatorRecord]:
        """The operators' records by name."""
        return stored_records(self.files)
