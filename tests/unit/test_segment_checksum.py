"""Protects the checksum in files: it is the public XXH64, so that other tools can verify a segment."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.kernels.core.checksum import xxh64

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
M = (1 << 64) - 1


def rotl(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & M


def mix(lane: int, word: int) -> int:
    return rotl((lane + word * P2) & M, 31) * P1 & M


def reference(data: bytes) -> int:
    """XXH64 with seed 0, after its public description."""
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data) - len(data) % 8, 8)]
    at, total = 0, P5
    if len(data) >= 32:
        lanes = [(P1 + P2) & M, P2, 0, -P1 & M]
        while at + 4 <= len(words):
            lanes = [mix(lane, words[at + i]) for i, lane in enumerate(lanes)]
            at += 4
        total = sum(rotl(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & M
        for lane in lanes:
            total = ((total ^ mix(0, lane)) * P1 + P4) & M
    total = (total + len(data)) & M
    for word in words[at:]:
        total = (rotl(total ^ mix(0, word), 27) * P1 + P4) & M
    tail = data[8 * len(words) :]
    if len(tail) >= 4:
        total = (rotl(total ^ int.from_bytes(tail[:4], "little") * P1 & M, 23) * P2 + P3) & M
        tail = tail[4:]
    for byte in tail:
        total = rotl(total ^ byte * P5 & M, 11) * P1 & M
    total = (total ^ total >> 33) * P2 & M
    total = (total ^ total >> 29) * P3 & M
    return total ^ total >> 32


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_the_reference_knows_the_published_digests(text, digest):
    assert reference(text) == digest


@pytest.mark.parametrize("words", [0, 1, 3, 4, 5, 7, 8, 31, 512, 1001])
def test_the_kernel_equals_the_reference(words):
    data = np.random.default_rng(words).integers(0, 2**64, words, np.uint64)
    assert int(xxh64(data)) == reference(data.tobytes())
