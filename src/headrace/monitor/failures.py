"""The part of a failed query's text that its reader needs: the error's own words and its hint. Pure."""

from __future__ import annotations

import re

_OURS = re.compile(r"headrace\.errors\.(\w+): (.*?)(?:\n\s*→ (.*?))?(?:\n\s*\n|\n\s*at |\n\w|$)", re.DOTALL)
_THEIRS = re.compile(r"^\w[\w.]*(?:Error|Exception): .+$", re.MULTILINE)
TEXT_MAX = 400


def failure(text: str) -> tuple[str, str]:
    """Message and hint of a failed query, out of the text of Spark's exception."""
    ours = _OURS.search(text)
    if ours is not None:
        return _short(ours[2]), _short(ours[3] or "")
    theirs = _THEIRS.findall(text)
    if theirs:
        return _short(theirs[-1]), "the driver's log has the whole text"
    return _short(text.strip().partition("\n")[0]), "the driver's log has the whole text"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_MAX else flat[: TEXT_MAX - 1] + "…"
