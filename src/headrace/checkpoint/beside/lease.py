"""The lease of a running query, in its checkpoint: which start runs it, and a beat that grows meanwhile.

`<checkpoint>/headrace-lease`. The driver writes it anew every `lease_renew_s`, also while a batch is slow,
and removes it when the query has ended and its last version is on shared storage. Nobody compares clocks:
a reader watches whether the file changes. Threads: any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.checkpoint.records import ReadFiles
from headrace.errors import HeadraceError, StateMissing
from headrace.format.record import decode_record, encode_record

NAME = "headrace-lease"
FORMAT_VERSION = 1
_KIND = "lease"


@dataclass(frozen=True)
class Lease:
    """One beat of a lease."""

    run: str  # Spark's run id
    holder: str  # application and machine, for people
    beat: int = 0

    def renewed(self) -> Lease:
        return replace(self, beat=self.beat + 1)

    def to_text(self) -> str:
        body = {"run": self.run, "holder": self.holder, "beat": self.beat}
        return encode_record(_KIND, FORMAT_VERSION, body).decode()


def read_lease(files: ReadFiles) -> Lease | None:
    """The lease of a checkpoint; None without one, and for one that cannot be read."""
    text = files.read(NAME)
    try:
        data = (text or "").encode("utf-8", "surrogateescape")
        body = decode_record(_KIND, FORMAT_VERSION, data, f"{files.root}/{NAME}")
        return Lease(str(body["run"]), str(body["holder"]), int(body["beat"]))
    except (HeadraceError, KeyError, TypeError, ValueError):
        return None


class LeaseWatch:
    """A look at a lease from outside, from its creation on."""

    def __init__(self, files: ReadFiles) -> None:
        self._files = files
        self._first = read_lease(files)

    def refuse_live(self) -> None:
        """Raises where the lease has been renewed, or begun, since the watch began."""
        lease = read_lease(self._files)
        if lease is not None and lease != self._first:
            raise StateMissing(
                f"the query at {self._files.root} is running: {lease.holder}",
                hint="stop it first, or leave it alone",
            )
