"""Protects counts against a wrong number of keys: a manifest's count of keys decides no results.

The number is for the progress report. Whether a key may be on disk follows from the segments alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.operators.open import open_store
from headrace.plan.spec import StoreName
from headrace.store.base.contract import Store
from headrace.testing.contracts.store_contract import folding
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row


def without_count(**opening: Any) -> Store:
    return open_store(**{**opening, "known_keys": 0})


@pytest.mark.parametrize("name", ["rmw", "memory", "rocksdb"])
def test_stored_keys_are_found_whatever_the_manifest_counts(name: StoreName, tmp_path: Path) -> None:
    spec = replace(folding(None, "changes"), store=name)
    lab = StoreLab(spec, tmp_path, opener=without_count)
    lab.epoch([Row(1, 0, 5), Row(2, 0, 6)], None)
    lab.reopen()
    assert lab.store.segments
    (row,) = lab.epoch([Row(1, 0, 7)], None)
    assert row[1:4] == (2, 2, 12)
