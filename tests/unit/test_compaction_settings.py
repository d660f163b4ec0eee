"""Protects the settings of compaction elsewhere: only the owner reads the secret, and all are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SettingError
from headrace.plan.options import read_options
from headrace.wire.compaction import read_secret

SECRET = "s" * 64


def test_the_secret_is_in_a_file_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(SettingError, match="cannot be read"):
        read_secret(path)
    path.write_text(SECRET)
    path.chmod(0o644)
    with pytest.raises(SettingError, match="open to other users"):
        read_secret(path)
    path.chmod(0o600)
    assert read_secret(path) == SECRET
    path.write_text("short")
    with pytest.raises(SettingError, match="fewer than 32"):
        read_secret(path)


def test_settings_belong_together() -> None:
    remote = {"spark.headrace.compaction": "remote"}
    with pytest.raises(SettingError, match="needs compactors and their secret"):
        read_options(remote, 1)
    workers = {**remote, "spark.headrace.compaction.workers": "a:1, [::1]:2"}
    options = read_options({**workers, "spark.headrace.compaction.secret": "/s"}, 1)
    assert options.compactors == "a:1,[::1]:2"
    with pytest.raises(SettingError, match="host:port"):
        read_options({**workers, "spark.headrace.compaction.workers": "nowhere"}, 1)
