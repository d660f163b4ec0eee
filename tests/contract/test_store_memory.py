"""Protects the store contract for state that is held in memory, and what happens when it does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SettingError
from headrace.testing.contracts.store_contract import (
    SESSION,
    SLIDE,
    TUMBLE,
    StoreContract,
    folding,
    keeping,
)
from headrace.testing.contracts.store_model import Row


class TestMemory(StoreContract):
    name = "memory"
    cases = (
        folding(None, "changes"),
        folding(TUMBLE, "final"),
        folding(SESSION, "changes"),
        keeping(SLIDE),
        keeping(SESSION),
    )
    spills = False

    def test_state_that_does_not_fit_names_the_setting(self, tmp_path: Path) -> None:
        lab = self.lab(folding(None, "changes"), tmp_path, share_bytes=1 << 20)
        lab.epoch([Row(key, 0, key) for key in range(500)], None)
        with pytest.raises(SettingError, match=r"'folds'(.|\n)*spark.headrace.memory"):
            lab.apply(Row(key, 0, key) for key in range(40_000))
        lab.reopen()
        assert len(lab.epoch([Row(key, 0, key) for key in range(700)], None)) == 700
