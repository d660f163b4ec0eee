"""Pins of one owner on all files of a version, put against collectors that run meanwhile.

A pin counts if, after it was put, no list of condemned files has one of its files and all of them exist
(`checkpoint/keep/condemned.py`). The owner has recorded the folders before its first pin, so a kill at any
step leaves pins that `release` finds.
Threads: any, on any number of machines.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.blob.base import Blobs
from headrace.checkpoint.keep.condemned import condemned_files
from headrace.checkpoint.keep.pins import Files, pin_name, put_pin


def hold(blobs: Blobs, owner: str, files: Files) -> bool:
    """Pins files of any operators; returns False, and leaves no pin, where a collector was faster."""
    for prefix, names in files.items():
        put_pin(blobs, prefix, owner, names)
    if all(_are_safe(blobs, prefix, set(names)) for prefix, names in files.items()):
        return True
    release(blobs, owner, files)
    return False


def release(blobs: Blobs, owner: str, prefixes: Iterable[str]) -> None:
    """Removes the pins of an owner; their files go with the next collection."""
    for prefix in prefixes:
        blobs.delete(pin_name(prefix, owner))


def _are_safe(blobs: Blobs, prefix: str, names: set[str]) -> bool:
    """Looks at the lists before the files: a list goes after its files."""
    return names.isdisjoint(condemned_files(blobs, prefix)) and names.issubset(blobs.list(f"{prefix}/"))
