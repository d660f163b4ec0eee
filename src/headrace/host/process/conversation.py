"""The host's side of a processor's conversation.

    client                                        server
                                            ◀─    metadata: the batch's watermarks
    rows, metadata {"request": "read"}      ─▶
                                            ◀─    one batch: the value of each row's cell
    rows, metadata {"request": "write"}     ─▶    no answer; so for "remind"
    metadata {"request": "due", …}          ─▶
                                            ◀─    batches of keys, then metadata {"end": true}
    metadata {"seen_ms": […]}               ─▶    finish

Requests are served in their order, so a read sees every write before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from headrace.errors import TryAgain
from headrace.wire.contract import Transaction
from headrace.wire.rows import checked


class ClientGone(TryAgain):
    """The task that wrote this stream no longer runs."""


def serve_processor(chunks: Iterator[Any], writer: Any, transaction: Transaction) -> list[int | None]:
    """Serves requests until the closing message; returns the batch's event times."""
    writer.write_metadata(json.dumps(asdict(transaction.times())).encode())
    for chunk in chunks:
        message = json.loads(chunk.app_metadata.to_pybytes())
        if "seen_ms" in message:
            seen: list[int | None] = message["seen_ms"]
            return seen
        rows = checked(chunk.data)
        for answer in transaction.answer(message["request"], rows, message.get("until_ms", 0)):
            writer.write_batch(answer)
        if message["request"] == "due":
            writer.write_metadata(b'{"end": true}')
    raise ClientGone("the client left before its input ended")
