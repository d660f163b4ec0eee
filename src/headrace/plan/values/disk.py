"""How much disk a cache takes: `20g`, a share such as `10%` of the free space, or 0 for none."""

from __future__ import annotations

import re

DISK_SHARE = "50%"  # of the free space, where nothing is set

_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)b?")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_disk(text: str) -> str:
    """A valid setting in its short form."""
    short = text.strip().lower().replace(" ", "")
    part = _PART.fullmatch(short)
    if part is not None and 0 < float(part[1]) <= 100:
        return short
    if part is None and _SIZE.fullmatch(short) is not None:
        return short
    raise ValueError("write a size such as 20g, a share of the free space such as 10%, or 0 for no copies")


def disk_bytes(text: str, free_bytes: int) -> int:
    """The bytes that a setting allows, of so many that are free."""
    part, size = _PART.fullmatch(text), _SIZE.fullmatch(text)
    if part is not None:
        return int(free_bytes * float(part[1]) / 100)
    if size is None:
        raise ValueError(f"{text} is not a size")
    return int(size[1]) << (10 * _UNITS[size[2]])
