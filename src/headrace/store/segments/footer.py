"""The footer of a segment: its sections and their indexes, read from the end of the file and verified."""

from __future__ import annotations

import os
from contextlib import suppress

from headrace.errors import StateCorrupt
from headrace.files.opened import OpenFile
from headrace.format import segment as form
from headrace.format.segment import Footer
from headrace.store.segments.indexes import ensure

_LOCAL_TAIL_BYTES = 512  # the end of a file, with the footer of a few sections
_TAIL_BYTES = 1 << 16  # the end of a file that is fetched: a request of this size costs hardly more


def footer_of(
    opened: OpenFile, width: int, checksum: int | None, end: bytes | None
) -> tuple[int, Footer, bytes]:
    """The size of a segment, its footer, verified, and its end. Of a file elsewhere only the end is read.

    An end that came another way counts if it has the checksum that the manifest names.
    """
    if end is not None and opened.is_partial and checksum is not None:
        with suppress(StateCorrupt):
            place = form.footer_place(opened.where, end[-form.TRAILER_BYTES :], opened.size)
            if place.check == checksum and place.version > 1:
                body = end[: -form.TRAILER_BYTES]
                return opened.size, form.parse_footer(opened.where, body, place, width), end
    return _read_footer(opened, width)


def _read_footer(opened: OpenFile, width: int) -> tuple[int, Footer, bytes]:
    where, fd, size = opened.where, opened.fd, opened.size
    ensure(opened, (max(0, size - _TAIL_BYTES), size))
    tail = os.pread(fd, _LOCAL_TAIL_BYTES, max(0, size - _LOCAL_TAIL_BYTES))
    if not opened.is_partial:
        form.check_header(where, os.pread(fd, form.HEADER_BYTES, 0), width)
    place = form.footer_place(where, tail[-form.TRAILER_BYTES :], size)
    if opened.is_partial and place.version == 1:  # its footer does not have the width
        ensure(opened, (0, form.HEADER_BYTES))
        form.check_header(where, os.pread(fd, form.HEADER_BYTES, 0), width)
    ensure(opened, (place.offset, size))
    at = len(tail) - form.TRAILER_BYTES - 8 * place.words
    body = tail[at : at + 8 * place.words] if at >= 0 else os.pread(fd, 8 * place.words, place.offset)
    footer = form.parse_footer(where, body, place, width)
    return size, footer, body + tail[-form.TRAILER_BYTES :]
