"""Protects the store contract for the same layouts over RocksDB."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.plan.spec import OperatorSpec
from headrace.store.rocksdb.files import Database
from headrace.testing.contracts.store_contract import (
    LATE_SESSION,
    LATE_SLIDE,
    SECOND,
    SESSION,
    SLIDE,
    TUMBLE,
    StoreContract,
    check,
    folding,
    keeping,
)
from headrace.testing.contracts.store_model import Row, StoreModel


class TestRocksDB(StoreContract):
    name = "rocksdb"
    cases = (
        folding(None, "changes"),
        folding(TUMBLE, "final"),
        folding(LATE_SLIDE, "changes"),
        folding(SESSION, "final"),
        folding(LATE_SESSION, "changes"),
        keeping(SLIDE),
        keeping(SESSION),
    )

    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nearly every lookup and scan is one of several parts."""
        monkeypatch.setattr("headrace.store.rocksdb.view.GET_KEYS", 3)
        monkeypatch.setattr("headrace.store.rocksdb.view.SCAN_VALUES", 2)
        monkeypatch.setattr("headrace.store.rocksdb.files.SCAN_VALUES", 2)

    @pytest.mark.parametrize(
        "looking", [folding(None, "changes"), folding(SESSION, "final")], ids=["keys", "sessions"]
    )
    def test_few_keys_are_asked_for_at_once(
        self, looking: OperatorSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """RocksDB holds a block in memory for each of them."""
        sizes: list[int] = []
        get_many = Database.get_many
        monkeypatch.setattr(
            Database, "get_many", lambda self, keys: sizes.append(len(keys)) or get_many(self, keys)
        )
        lab, model = self.lab(looking, tmp_path), StoreModel(looking)
        for number in range(3):
            check(lab, model, [Row(key, number * SECOND, key) for key in range(50)], 0)
            lab.reopen()
        assert sum(sizes) >= 100
        assert max(sizes) == 3

    @pytest.mark.parametrize("swept", [folding(SESSION, "final"), keeping(SESSION)], ids=["folds", "keeps"])
    def test_dead_rows_are_swept_out_of_what_lives_on(
        self, swept: OperatorSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headrace.store.rocksdb.store.SWEEP_ROWS", 8)
        monkeypatch.setattr("headrace.store.rocksdb.store.SWEEP_PART", 8)
        lab, model, draw = self.lab(swept, tmp_path), StoreModel(swept), random.Random(5)
        for number in range(25):
            now = number * 3 * SECOND
            fresh = [Row(number * 40 + key, now + draw.randrange(SECOND), key) for key in range(40)]
            check(lab, model, [*fresh, Row(3, now, number)], now - SECOND)
        keys = lab.store.database.keys(b"\x00", b"\xfe")
        assert 40 < len(keys) < 800, "a thousand keys had sessions, few of them are alive"
        lab.reopen()
        check(lab, model, [Row(7, 25 * 3 * SECOND, 1)], 200 * SECOND)

    def test_a_version_names_one_manifest_of_rocksdb_and_no_file_that_is_gone(self, tmp_path: Path) -> None:
        lab = self.lab(folding(None, "changes"), tmp_path)
        for number in range(12):
            lab.epoch([Row(key, 0, number) for key in range(50)], None)
        assert lab.manifest is not None
        labels = sorted(entry.label for entry in lab.manifest.segments)
        live = {file["name"].lstrip("/") for file in lab.store.database.db.live_files()}
        assert len(labels) == len(set(labels))
        assert [label.partition("-")[0] for label in labels if not label.endswith(".sst")] == ["MANIFEST"]
        assert len(labels) <= len(live) + 8, "RocksDB compacts as it goes, and a version follows"

    @pytest.mark.parametrize("spec", [folding(TUMBLE, "final"), keeping(SESSION)], ids=["folds", "keeps"])
    def test_a_view_is_as_large_as_its_rows(self, spec: OperatorSpec, tmp_path: Path) -> None:
        """A store that takes it for empty reads all of it into memory, in every batch."""
        lab = self.lab(spec, tmp_path)
        lab.epoch([Row(key, 0, key) for key in range(50)], None)
        few = sum(view.size for view in lab.store.views)
        lab.epoch([Row(key, 0, key) for key in range(50, 150)], None)
        assert 50 * 16 <= few < sum(view.size for view in lab.store.views)
