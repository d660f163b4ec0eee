"""The entries of a log that can be redone. Damaged ones are set aside and count as missing.

After a power loss an entry, or a file that it names, may have its name and not its content.
Threads: any, in any number of processes: an entry of a live host is whole as soon as it has its name.
"""

from __future__ import annotations

import logging

from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.log import LocalLog, LogEntry
from headrace.checkpoint.whole import check_whole
from headrace.errors import BlobMissing, StateCorrupt
from headrace.format.manifest import SegmentEntry
from headrace.format.names import Attempt, blob_name

log = logging.getLogger("headrace.commit")


def recoverable(home: PartitionHome, entries: LocalLog, version: int) -> list[Attempt]:
    """The attempts at `version` whose entry and files are whole, oldest first."""
    attempts = [attempt for attempt in entries.entries() if attempt.version == version]
    return [attempt for attempt in attempts if _is_whole(home, entries, attempt)]


def _is_whole(home: PartitionHome, entries: LocalLog, attempt: Attempt) -> bool:
    try:
        _check_files(home, entries, entries.read(attempt))
    except FileNotFoundError:  # a host of this machine has just published it
        return False
    except StateCorrupt as error:
        aside = entries.set_aside(attempt)
        log.warning("%s; it counts as missing and is now %s", error.message, aside)
        return False
    return True


def _check_files(home: PartitionHome, entries: LocalLog, entry: LogEntry) -> None:
    """Checks the files that the log has and the entry's rows cannot give again."""
    for segment in entry.manifest.segments:
        if segment.name in entry.local:
            _check_file(home, entries, segment)


def _check_file(home: PartitionHome, entries: LocalLog, segment: SegmentEntry) -> None:
    path = entries.file(segment.name)
    problem = f"the local file {path} is missing"
    try:
        check_whole(path, segment)
        return
    except FileNotFoundError:
        pass
    except StateCorrupt as error:
        problem = error.message
    if not _is_shared(home, segment):
        raise StateCorrupt(f"a log entry in {entries.folder} cannot be redone: {problem}")
    path.unlink(missing_ok=True)  # readers open the file on shared storage


def _is_shared(home: PartitionHome, segment: SegmentEntry) -> bool:
    try:
        return home.blobs.size(blob_name(home.prefix, segment.name)) == segment.size
    except BlobMissing:
        return False
