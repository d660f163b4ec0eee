"""Protects what `headrace top` prints, and the commands of the first minutes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from io import StringIO
from pathlib import Path

from progress_rows import START_MS, batch_record
from rich.console import Console
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.terminal import screen
from headrace.monitor.history import FOLDER, HistoryWriter, LocalHistory
from headrace.monitor.picture.picture import Picture
from headrace.monitor.records import event


def printed(width: int) -> str:
    picture = Picture()
    picture.take([batch_record(number) for number in range(10)])
    picture.take([event(START_MS, "host a", "warning", "the host ended", "see its log")])
    out = StringIO()
    console = Console(file=out, width=width)
    console.print(screen(picture, width, live=True))
    return out.getvalue()


def test_the_screen_has_operators_batches_and_events() -> None:
    text = printed(120)
    assert "counts" in text
    assert "last 40 batches" in text
    assert "see its log" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_a_narrow_screen_leaves_the_bars_out() -> None:
    assert "last 40 batches" not in printed(80)


def test_top_shows_a_history(tmp_path: Path) -> None:
    writer = HistoryWriter(LocalHistory(tmp_path / FOLDER), 1 << 20)
    writer.write([batch_record(number) for number in range(3)], START_MS)
    done = CliRunner().invoke(app, ["top", str(tmp_path)])
    assert done.exit_code == 0
    assert "counts" in done.output


def test_no_application_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    for command in (["top"], ["view", "--no-browser"]):
        done = CliRunner().invoke(app, [*command, "--local", str(tmp_path)])
        assert done.exit_code == 1
        assert "start a query first" in done.output


def test_the_module_is_the_command_line() -> None:
    command = [sys.executable, "-m", "headrace", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"headrace {version('headrace')}, pyspark {version('pyspark')}\n"
