"""Writes that are repeated until their outcome is known.

After a lost reply the name is read back, and its bytes decide.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.clock import Clock
from headrace.errors import AlreadyExists, BlobMissing, Fenced, HeadraceError, MaybeApplied, TryAgain


@dataclass(frozen=True)
class Retry:
    """The number of tries and the waits between them: doubling from `first_ms` up to `last_ms`."""

    tries: int = 6
    first_ms: float = 20.0
    last_ms: float = 2000.0

    def delay_ms(self, failures: int) -> float:
        """The wait after `failures` failures."""
        return min(self.last_ms, self.first_ms * 2.0 ** (failures - 1))


def put_or_read(blobs: Blobs, name: str, data: bytes, *, clock: Clock, retry: Retry) -> bytes:
    """Puts `data` if the name is unused; returns the bytes that are stored in the end.

    Equal bytes mean that this write was applied. After the last try the last error is raised. It is
    `MaybeApplied` if any write may still have been applied.
    """
    unsettled: MaybeApplied | None = None
    for failures in range(1, retry.tries + 1):
        try:
            blobs.put_if_absent(name, data)
            return data
        except (MaybeApplied, AlreadyExists) as error:
            unsettled = error if isinstance(error, MaybeApplied) else unsettled
            last: HeadraceError = error
        except TryAgain as error:
            last = error
        if unsettled or isinstance(last, AlreadyExists):
            stored = _read_or_none(blobs, name)
            if stored is not None:
                return stored
        if failures < retry.tries:
            clock.sleep_ms(retry.delay_ms(failures))
    raise unsettled or last


def place_file(blobs: Blobs, name: str, path: Path, *, clock: Clock, retry: Retry) -> None:
    """Moves a finished file to an attempt-unique name, through lost replies.

    A name that exists before any reply was lost belongs to another writer of the same attempt: `Fenced`.
    After a lost reply a blob of the same size is this write, because no other writer uses the name.
    """
    size = path.stat().st_size
    unsettled: MaybeApplied | None = None
    for failures in range(1, retry.tries + 1):
        try:
            if unsettled is None or path.exists():  # a write with a lost reply may have moved the source
                return blobs.put_file(name, path)
        except MaybeApplied as error:
            last: HeadraceError = error
            unsettled = error
        except AlreadyExists as error:
            if unsettled is None:
                raise _written_by_other(blobs, name) from error
        except TryAgain as error:
            last = error
        if unsettled and _size_or_none(blobs, name) == size:
            with suppress(OSError):  # the blob exists: a leftover source does no harm
                path.unlink(missing_ok=True)
            return None
        if failures < retry.tries:
            clock.sleep_ms(retry.delay_ms(failures))
    raise unsettled or last


def _written_by_other(blobs: Blobs, name: str) -> Fenced:
    return Fenced(
        f"{blobs.root}/{name} was written by someone else in the name of this attempt",
        hint="let Spark try the task again: the next attempt has names of its own",
    )


def _read_or_none(blobs: Blobs, name: str) -> bytes | None:
    """The blob's bytes; None when it is missing or unreadable, in which case the caller tries again."""
    try:
        return blobs.get(name)
    except (BlobMissing, TryAgain):
        return None


def _size_or_none(blobs: Blobs, name: str) -> int | None:
    try:
        return blobs.size(name)
    except (BlobMissing, TryAgain):
        return None
