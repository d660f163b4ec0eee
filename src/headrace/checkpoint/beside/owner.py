"""Which checkpoint the state of a query belongs to, where the state is outside of the checkpoint.

`<query>/runs/owner-<number>` names a checkpoint, put if absent; the newest counts. A checkpoint that moved
takes the state over. A copy is refused: two queries would write the same versions. State inside of its
checkpoint has no such record: it moves and is copied with the checkpoint.
Threads: any; storage decides races.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import QueryError
from headrace.format.names import runs_folder
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
_KIND = "owner"
_NAME = re.compile(r".*/owner-(\d{8})", re.ASCII)


def claim_state(blobs: Blobs, query: str, root: str, is_there: Callable[[str], bool]) -> None:
    """Makes the checkpoint at `root` the owner of the query's state, or raises why it cannot be.

    `is_there` is whether a checkpoint still exists, with this query in it.
    """
    mine = encode_record(_KIND, FORMAT_VERSION, {"checkpoint": plain_root(root)})
    while True:  # each turn either ends or meets an owner that came meanwhile
        newest = refuse_copy(blobs, query, root, is_there)
        if newest is None:
            return
        name = f"{runs_folder(query)}owner-{newest + 1:08d}"
        if put_or_read(blobs, name, mine, clock=SYSTEM_CLOCK, retry=Retry()) == mine:
            return


def refuse_copy(blobs: Blobs, query: str, root: str, is_there: Callable[[str], bool]) -> int | None:
    """Raises where another checkpoint owns the state; the newest owner's number if `root` is not it."""
    number, owner = owner_of(blobs, query)
    if owner == plain_root(root):
        return None
    if owner is not None and is_there(owner):
        raise QueryError(
            f"the checkpoint {root} is a copy of {owner}, which owns the state in {blobs.root}",
            hint="for a query of its own, remove the copy, run `headrace savepoint create "
            f'{owner} <name>`, and start it with hr.start(writer, from_savepoint="{owner}#<name>"); '
            f"to go on here instead of there, remove {owner}",
        )
    return number


def owner_of(blobs: Blobs, query: str) -> tuple[int, str | None]:
    """The newest owner and its number; 0 and None before the first."""
    names = sorted(name for name in blobs.list(f"{runs_folder(query)}owner-") if _NAME.fullmatch(name))
    if not names:
        return 0, None
    where = f"{blobs.root}/{names[-1]}"
    owner = decode_record(_KIND, FORMAT_VERSION, blobs.get(names[-1]), where).get("checkpoint")
    if not isinstance(owner, str):
        raise corrupt(_KIND, where, "it names no checkpoint")
    return int(names[-1][-8:]), owner


def plain_root(root: str) -> str:
    """One spelling per checkpoint: `file:/a` and `file:///a/` are the same."""
    return re.sub(r"^(?:file:)?/+", "file:/", root.rstrip("/"))
