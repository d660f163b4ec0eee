"""Pins: immutable records by which something outside of a query's versions names files of the query.

    <query>/<operator>/pins/<owner>      the whole names of files of this operator

A savepoint pins all that its version names. A branch pins all that it begins from, and releases it once its
retained versions name files of its own only. A version may name files of several queries: each of their
operators then has a pin of the owner.
Threads: any, on any number of machines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.checkpoint.restore import read_manifest
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import BlobMissing
from headrace.format.names import blob_name, component, home_of, operator_of
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
_KIND = "pin"

Files = Mapping[str, Collection[str]]  # whole names, by the folder of their operator


def pin_name(prefix: str, owner: str) -> str:
    """The pin of an owner in an operator's folder."""
    return f"{_folder(prefix)}{component(owner)}"


def named_files(blobs: Blobs, manifests: Sequence[str]) -> Files:
    """Manifests and all that they name; raises `BlobMissing` where a manifest is gone."""
    names: dict[str, set[str]] = {}
    for manifest in manifests:
        segments = read_manifest(blobs, manifest).segments
        for name in (manifest, *(blob_name(home_of(manifest), segment.name) for segment in segments)):
            names.setdefault(operator_of(name), set()).add(name)
    return names


def put_pin(blobs: Blobs, prefix: str, owner: str, files: Iterable[str]) -> None:
    """Pins files of an operator; the same pin may be put again."""
    data = encode_record(_KIND, FORMAT_VERSION, {"files": sorted(files)})
    put_or_read(blobs, pin_name(prefix, owner), data, clock=SYSTEM_CLOCK, retry=Retry())


def pinned_files(blobs: Blobs, prefix: str, names: Iterable[str] | None = None) -> set[str]:
    """The files of an operator that are pinned; `names` may be a listing of its folder."""
    folder = _folder(prefix)
    pins = blobs.list(folder) if names is None else [name for name in names if name.startswith(folder)]
    return {file for pin in pins for file in _files(blobs, pin)}


def _folder(prefix: str) -> str:
    return f"{prefix}/pins/"


def _files(blobs: Blobs, pin: str) -> list[str]:
    try:
        body = decode_record(_KIND, FORMAT_VERSION, blobs.get(pin), f"{blobs.root}/{pin}")
    except BlobMissing:  # it was released meanwhile
        return []
    files = body.get("files")
    if not isinstance(files, list):
        raise corrupt(_KIND, f"{blobs.root}/{pin}", "it names no files")
    return [str(name) for name in files]
