"""Whether state belongs to the checkpoint of the query that starts; what a moved one may go on with.

The default state location is inside of the checkpoint and goes with it. Any other location has a record of
its checkpoint (`checkpoint/beside/owner.py`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Protocol

from headrace.blob.base import Blobs
from headrace.checkpoint.beside.owner import claim_state, refuse_copy
from headrace.checkpoint.records import OperatorRecord, ReadFiles, default_location
from headrace.errors import HeadraceError, StateMissing
from headrace.format.names import runs_folder

log = logging.getLogger("headrace.coordinator")


class Places(Protocol):
    """Where state and checkpoints are."""

    def blobs_at(self, location: str, *, create: bool) -> Blobs:
        """The blobs of a state location."""

    def files_at(self, root: str) -> ReadFiles:
        """The files of any checkpoint."""


def settle_owner(places: Places, query: str, root: str, location: str, *, new: bool) -> None:
    """Claims the state for the checkpoint at `root`; a copied checkpoint raises."""
    if location != default_location(root):
        blobs = places.blobs_at(location, create=new)
        claim_state(blobs, query, root, lambda owner: _has_query(places, owner, query))


def refuse_copied(places: Places, query: str, root: str, location: str) -> None:
    """Raises for a copied checkpoint, and changes nothing."""
    if location != default_location(root):
        blobs = places.blobs_at(location, create=False)
        refuse_copy(blobs, query, root, lambda owner: _has_query(places, owner, query))


def followed(places: Places, query: str, record: OperatorRecord, location: str) -> OperatorRecord:
    """The record at a new location, if the query's state has moved there; else the record as it is."""
    if record.location == location:
        return record
    if _has_state(places, query, record.location) or not _has_state(places, query, location):
        return record
    log.info("the state of %s has moved from %s to %s", record.spec.name, record.location, location)
    return replace(record, location=location)


def _has_state(places: Places, query: str, location: str) -> bool:
    try:
        return bool(places.blobs_at(location, create=False).list(runs_folder(query)))
    except StateMissing:
        return False


def _has_query(places: Places, root: str, query: str) -> bool:
    """Whether a checkpoint of this query is at `root`."""
    try:
        text = places.files_at(root).read("metadata")
        return text is not None and json.loads(text)["id"] == query
    except HeadraceError:
        raise
    except Exception as error:  # of any file system, and of text that is no JSON
        raise StateMissing(
            f"the state belongs to the checkpoint {root}, which cannot be read: {error}",
            hint="make it readable, so that a copy and a move can be distinguished",
        ) from error
