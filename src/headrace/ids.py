"""Identifiers: unique ones for writes, and a digest that says which operator state belongs to."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import asdict
from functools import lru_cache

from headrace.spec import SPECS_KEPT, OperatorSpec


def new_write_id() -> str:
    """32 hex digits that no other call on any machine returns."""
    return uuid.uuid4().hex


@lru_cache(maxsize=SPECS_KEPT)
def spec_digest(spec: OperatorSpec) -> str:
    """A digest of what decides how state rows look: equal for specs that can share state.

    Names and labels, the emit mode and the watermark delays are left out: they change no bytes of a row.
    (`checkpoint.operator_record.differences` is stricter, and speaks.)
    """
    said = {
        "keys": [field.type for field in spec.keys],
        "accumulators": [(acc.kind, acc.type, acc.overflow) for acc in spec.accumulators],
        "window": asdict(spec.window) if spec.window else None,
        "partitions": spec.partitions,
    }
    if spec.keeps:
        said["kept"] = [field.type for field in spec.inputs]
        said["join"] = spec.join is not None
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]
