"""Writes that are tried until it is known what became of them.

Never guesses: after a reply that was lost the name is read, and what it holds decides.
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
    """How often to try, and how long to wait in between: doubling from `first_ms` up to `last_ms`."""

    tries: int = 6
    first_ms: float = 20.0
    last_ms: float = 2000.0

    def delay_ms(self, failures: int) -> float:
        """The wait after so many failures."""
        return min(self.last_ms, self.first_ms * 2.0 ** (failures - 1))


def put_or_read(blobs: Blobs, name: str, data: bytes, *, clock: Clock, retry: Retry) -> bytes:
    """Put `data` unless the name is taken; returns what the name holds in the end.

    Equal bytes mean that this write won. When the tries are used up the last error is raised: it is
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
            held = _read_or_none(blobs, name)
            if held is not None:
                return held
        if failures < retry.tries:
            clock.sleep_ms(retry.delay_ms(failures))
    raise unsettled or last


def place_file(blobs: Blobs, name: str, path: Path, *, clock: Clock, retry: Retry) -> None:
    """Move a finished file to an attempt-unique name, through lost replies.

    A name that is taken before any reply was lost belongs to another writer of the same attempt: `Fenced`.
    After a lost reply, a blob of the same size is this write, because nobody else uses the name.
    """
    size = path.stat().st_size
    unsettled: MaybeApplied | None = None
    for failures in range(1, retry.tries + 1):
        try:
            if unsettled is None or path.exists():  # a lost reply may have taken the source with it
                return blobs.put_file(name, path)
        except MaybeApplied as error:
            last: HeadraceError = error
            unsettled = error
        except AlreadyExists as error:
            if unsettled is None:
                raise _taken(blobs, name) from error
        except TryAgain as error:
            last = error
        if unsettled and _size_or_none(blobs, name) == size:
            with suppress(OSError):  # the blob is there: a source that stays is only litter
                path.unlink(missing_ok=True)
            return None
        if failures < retry.tries:
            clock.sleep_ms(retry.delay_ms(failures))
    raise unsettled or last


def _taken(blobs: Blobs, name: str) -> Fenced:
    return Fenced(
        f"{blobs.root}/{name} was written by someone else in the name of this attempt",
        hint="let Spark try the task again: the next attempt has names of its own",
    )


def _read_or_none(blobs: Blobs, name: str) -> bytes | None:
    """None: not there, or not readable now; either way the caller tries again."""
    try:
        return blobs.get(name)
    except (BlobMissing, TryAgain):
        return None


def _size_or_none(blobs: Blobs, name: str) -> int | None:
    try:
        return blobs.size(name)
    except (BlobMissing, TryAgain):
        return None
