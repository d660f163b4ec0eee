"""Identifiers: unique ids of writes, and the digest of the operator that state belongs to."""

from __future__ import annotations

import hashlib
import json
import secrets
import uuid
from functools import lru_cache

from headrace.plan.spec import SPECS_KEPT, OperatorSpec


def new_write_id() -> str:
    """32 hex digits that no other call on any machine returns."""
    return uuid.uuid4().hex


def new_number() -> int:
    """A random number of at most 12 digits."""
    return secrets.randbelow(10**12)


@lru_cache(maxsize=SPECS_KEPT)
def spec_digest(spec: OperatorSpec) -> str:
    """A digest of the members that decide how state rows look; specs that can share state have the same.

    It leaves out names, labels, the emit mode and the watermark delays: they change no bytes of a row.
    `checkpoint.operator_record.differences` is stricter and explains itself to the user.
    """
    members = {
        "keys": [field.type for field in spec.keys],
        "window": spec.window.to_json() if spec.window else None,
        "partitions": spec.partitions,
        **spec.work.digest(spec.inputs),
    }
    return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()[:32]
