"""The envelope of every small file: a magic line, one JSON object, a checksum line.

    headrace <kind> <format version> LF
    <JSON object, UTF-8, no line feed inside> LF
    crc32 <8 hex digits of the CRC-32 of everything before this line> LF

The first and the last line keep this form in all format versions, so that a reader can distinguish damage
from a newer format.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from headrace.errors import StateCorrupt, StateUnsupported

_MAGIC = re.compile(rb"headrace ([a-z]+) (\d{1,9})")
_TRAILER = re.compile(rb"crc32 ([0-9a-f]{8})\n")
_RESTORE = "bring the file back from a backup, or start again with a new checkpoint location"


def encode_record(kind: str, version: int, body: Mapping[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    head = f"headrace {kind} {version}\n{text}\n".encode()
    return head + f"crc32 {zlib.crc32(head):08x}\n".encode()


def decode_record(kind: str, version: int, data: bytes, where: str) -> dict[str, Any]:
    """The body of a record of `kind`, at most of format `version`; `where` names the file in errors."""
    cut = data.rfind(b"\n", 0, len(data) - 1) + 1
    head, trailer = data[:cut], _TRAILER.fullmatch(data[cut:])
    if trailer is None:
        raise corrupt(
            kind, where, f"its checksum line is missing after {len(data)} bytes; it was cut short"
        )
    if int(trailer[1], 16) != zlib.crc32(head):
        raise corrupt(kind, where, "its checksum does not match")
    first, _, text = head.partition(b"\n")
    magic = _MAGIC.fullmatch(first)
    if magic is None or magic[1].decode() != kind:
        raise corrupt(kind, where, f"it starts with {first[:40]!r}")
    if int(magic[2]) > version:
        raise StateUnsupported(
            f"{where} has {kind} format {int(magic[2])}; this release reads up to {version}",
            hint="run the query with the release that wrote its state, or a newer one",
        )
    return _body(kind, text, where)


def corrupt(kind: str, where: str, reason: str) -> StateCorrupt:
    """The error for a damaged record."""
    return StateCorrupt(f"the {kind} {where} is damaged: {reason}", hint=_RESTORE)


def _body(kind: str, text: bytes, where: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise corrupt(kind, where, f"its body is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise corrupt(kind, where, "its body is not a JSON object")
    return body
