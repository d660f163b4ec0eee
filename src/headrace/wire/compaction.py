"""A host's request to a compactor, and the secret that both have.

    host                                          compactor
    {"secret", "compact": request}           ─▶
                                             ◀─   {"alive": true}, every second
                                             ◀─   {"entry": …}, or nothing, busy, error

The request is data only: names on shared storage and the kind of merge. A connection that closes before the
answer ends the job.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import SettingError
from headrace.format.manifest import SegmentEntry

SECRET_MIN = 32
_OPEN_BITS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


@dataclass(frozen=True)
class CompactionRequest:
    """One compaction as data."""

    location: str
    prefix: str  # the partition's folder
    operator: str  # the spec as JSON
    store: str  # the layout of the segments
    kind: str
    merge: str  # a name in `store.merges`
    sections: tuple[int, ...]
    dead_through_us: int | None
    living: tuple[int, int] | None
    inputs: tuple[SegmentEntry, ...]  # oldest first
    output: str  # the name that the output gets, relative to the partition

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CompactionRequest:
        living = values["living"]
        return cls(
            **{
                **values,
                "sections": tuple(values["sections"]),
                "living": None if living is None else (int(living[0]), int(living[1])),
                "inputs": tuple(SegmentEntry(**entry) for entry in values["inputs"]),
            }
        )


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address is in brackets."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_secret(path: Path) -> str:
    """The secret in a file; raises `SettingError` for one that others can read or that is too short."""
    make = f"make one with: (umask 077; openssl rand -hex 32 > {path})"
    try:
        mode, secret = path.stat().st_mode, path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"the secret of compactors cannot be read: {error}", hint=make) from None
    if mode & _OPEN_BITS:
        raise SettingError(
            f"{path} is open to other users", hint=f"chmod 600 {path}, and change the secret"
        )
    if len(secret) < SECRET_MIN:
        raise SettingError(f"the secret in {path} has fewer than {SECRET_MIN} characters", hint=make)
    return secret
