"""Hints on the host's plain door: hashes of rows that are on their way, from the stage before the shuffle.

    sender                                              host
    header: query, operator, partitions, doors,
            side of a join                         ─▶
    hashes, or hashes and times: 8 bytes each      ─▶    expected here, or relayed to the partition's door

Invariants: a hint changes no result, so nothing is answered and nothing is retried. A sender that dies in
the middle of an entry loses that entry.
Threads: one per connection.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.plan.spec import HASH, SIDE, TIME
from headrace.row.arrays import I64
from headrace.wire.contract import StateService
from headrace.wire.frames import send_frame

log = logging.getLogger("headrace.host")

_READ_BYTES = 1 << 16
_RELAY_S = 2.0  # a host that takes no hints in this time gets no more of them
_GROUP_BITS = 10


class HintDoor:
    """Takes the hints of connections."""

    def __init__(self, service: StateService, secret: str) -> None:
        self._service, self._secret = service, secret

    def __call__(self, peer: socket.socket, header: dict[str, Any]) -> None:
        relay = HintRelay(self._secret, header)
        width = 16 if header["timed"] else 8
        rest = b""
        try:
            while chunk := peer.recv(_READ_BYTES):
                data = rest + chunk
                whole = len(data) - len(data) % width
                rest = data[whole:]
                entries = np.frombuffer(data[:whole], np.int64).reshape(-1, width // 8)
                spread(self._service, header, entries, relay)
        finally:
            relay.close()


def spread(service: StateService, header: dict[str, Any], entries: I64, relay: HintRelay) -> None:
    """Gives hints to the partitions of this host, and relays those of other partitions."""
    numbers, side = partitions_of(entries[:, 0], header["partitions"]), header.get("side")
    for number in np.unique(numbers).tolist():
        mine = entries[numbers == number]
        if not service.expect(header["query"], header["operator"], number, hint_rows(mine, side)):
            relay.send(number, mine)


class HintRelay:
    """Passes hints on to the hosts that own their partitions."""

    def __init__(self, secret: str, header: dict[str, Any]) -> None:
        self._secret = secret
        self._doors = header.get("doors") or []
        self._header = {**header, "doors": []}  # a hint is relayed once
        self._open: dict[str, socket.socket | None] = {}

    def send(self, number: int, entries: I64) -> None:
        door = self._doors[number] if number < len(self._doors) else None
        peer = None if door is None else self._peer(door)
        if peer is None:
            return
        try:
            peer.sendall(entries.tobytes())
        except OSError as error:
            log.info("hints for %s are lost: %s", door, error)
            self._open[str(door)] = None

    def _peer(self, door: str) -> socket.socket | None:
        if door not in self._open:
            self._open[door] = self._connected(door)
        return self._open[door]

    def _connected(self, door: str) -> socket.socket | None:
        host, _, port = door.rpartition(":")
        try:
            peer = socket.create_connection((host, int(port)), timeout=_RELAY_S)
            send_frame(peer, {"secret": self._secret, "hints": self._header})
            return peer
        except (OSError, ValueError) as error:
            log.info("hints for %s are lost: %s", door, error)
            return None

    def close(self) -> None:
        for peer in self._open.values():
            if peer is not None:
                with suppress(OSError):
                    peer.close()


def partitions_of(hashes: I64, partitions: int) -> I64:
    """The partition of each hash: its group, scaled to the number of partitions."""
    groups = hashes.view(np.uint64) >> np.uint64(64 - _GROUP_BITS)
    return (groups.astype(np.int64) * partitions) >> _GROUP_BITS


def hint_rows(entries: I64, side: int | None = None) -> pa.RecordBatch:
    """Hints as a store expects rows: hashes, times where they have any, and the side of a join."""
    columns = {HASH: pa.array(entries[:, 0])}
    if entries.shape[1] > 1:
        columns[TIME] = pa.array(entries[:, 1]).cast(pa.timestamp("us", "UTC"))
    if side is not None:
        columns[SIDE] = pa.array(np.full(len(entries), side, np.int8))
    return pa.RecordBatch.from_pydict(columns)
