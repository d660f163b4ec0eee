"""Hints for the operators above in a chain, from the rows or the results of the operator below.

    transaction's thread ─▶ queue ─▶ the exchange's own: hashes of keys ─▶ partitions, here or relayed

A link names the operator above, `source` (`input` or `results`), the columns that are its keys, in their
order, and the column that is its event time, if it has one. Spark's plan of the batch decides about links.
Invariants: a hint changes no result. The queue is never waited for: what it does not take is lost.
Threads: `hint` and `close` from the transaction's; one thread per exchange whose ticket has links.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.host.ahead.hints import HintRelay, spread
from headrace.plan.columns import wire_columns
from headrace.plan.spec import OperatorSpec, output_columns
from headrace.row.arrays import I64
from headrace.store.rows.hashing import hashes_of
from headrace.wire.contract import StateService, Ticket

log = logging.getLogger("headrace.host")

MESSAGES_MAX = 64  # that wait for the thread
WAITING_BYTES = 8 << 20  # of rows that wait for it, and one batch: they are not in the host's budget


class ChainHints:
    """The hints that one exchange gives to operators above its own."""

    def __init__(self, service: StateService, secret: str, ticket: Ticket) -> None:
        self._service, self._secret, self._links = service, secret, ticket.links
        self._kinds = kinds_of(ticket.operator)
        self._messages: queue.SimpleQueue[tuple[str, pa.RecordBatch] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._put_bytes = self._done_bytes = 0  # each changed by one thread

    def hint(self, source: str, batch: pa.RecordBatch) -> None:
        """Rows of the operator came in, or its results leave."""
        if not batch.num_rows or not any(link["source"] == source for link in self._links):
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="chain-hints", daemon=True)
            self._thread.start()
        waiting_bytes = self._put_bytes - self._done_bytes
        if self._messages.qsize() < MESSAGES_MAX and waiting_bytes < WAITING_BYTES:
            self._put_bytes += batch.nbytes
            self._messages.put((source, batch))

    def close(self) -> None:
        """The exchange is over; the thread ends after the messages that wait."""
        self._messages.put(None)

    def _run(self) -> None:
        relays = [HintRelay(self._secret, link) for link in self._links]
        try:
            while (message := self._messages.get()) is not None:
                for link, relay in zip(self._links, relays, strict=True):
                    if link["source"] == message[0]:
                        entries = entries_of(message[1], link, self._kinds)
                        spread(self._service, link, entries, relay)
                self._done_bytes += message[1].nbytes
        except Exception as error:  # a lost hint: the rows read on demand
            log.info("hints for the operators above are lost: %s", error)
        finally:
            for relay in relays:
                relay.close()


def kinds_of(spec: OperatorSpec) -> dict[str, str]:
    """The state types of the columns that can be keys of an operator above."""
    return {
        **{column.name: column.type for column in output_columns(spec)},
        **dict(wire_columns(spec.keys)),
    }


def entries_of(batch: pa.RecordBatch, link: dict[str, Any], kinds: dict[str, str]) -> I64:
    """Hints for the operator above: distinct hashes, and times where it has an event time."""
    keys = [(batch.column(name), kinds[name]) for name in link["keys"]]
    columns = [hashes_of(keys, batch.num_rows).view(np.int64)]
    if link["timed"]:
        columns.append(batch.column(link["time"]).cast(pa.int64()).fill_null(0).to_numpy())
    return np.unique(np.stack(columns, axis=1), axis=0)
