"""Protects the pages of a busy application, and makes the pictures of the documentation.

`pytest tests/unit/test_view_pictures.py --pictures docs/pictures` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from busy_journal import BATCHES, busy_journal

from headrace.monitor.history import FOLDER, HistoryWriter, LocalHistory
from headrace.monitor.records import ended
from headrace.pages import state
from headrace.pages.feed import Feed, Here, Recorded
from headrace.pages.server import View
from headrace.testing.browser.chromium import Browser, chromium

pytestmark = pytest.mark.skipif(chromium() is None, reason="chromium is not installed on this machine")

BATCH = "globalThis.Bokeh?.documents[0]?.get_model_by_name('batches')?.data.batch.at(-1)"
DRAWN = "globalThis.Bokeh?.documents[0]?.is_idle"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(height=1130) as started:
        yield started


@pytest.fixture
def view() -> Iterator[View]:
    served = View(Feed(Here(busy_journal())))
    yield served
    served.stop()


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    chosen = request.config.getoption("--pictures")
    return Path(chosen) if chosen else tmp_path


def test_the_page_of_a_query(view: View, browser: Browser, folder: Path) -> None:
    browser.open(view.url)
    text = browser.until_text("payments")
    assert "3 operators" in text
    assert "storage throttled" in browser.until_text("another took its place")
    assert browser.until(BATCH) == BATCHES - 2
    assert is_picture(shot(browser, folder / "view.png"))


def test_the_page_of_an_operator(
    view: View, browser: Browser, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"user": ["ann", "bob", "eve"], "n": [812, 790, 3], "total": [9144.5, 8021.0, 12.25]})
    rows = state.Rows(["user"], [], table.to_batches())
    monkeypatch.setattr(state, "opened", lambda *_: (one for one in [rows]))
    browser.open(f"{view.url}operator?query=q&operator=per-user")
    assert "the fullest, partition 1, got" in browser.until_text("each row changes one state row")
    browser.until("globalThis.Bokeh?.documents[0]?.get_model_by_name('key') !== undefined")
    browser.js("Bokeh.documents[0].get_model_by_name('key').value = 'ann'")
    assert "812" in browser.until_text("1 rows shown, 3 looked at")
    assert is_picture(shot(browser, folder / "operator.png"))


def test_the_page_of_a_query_that_has_stopped(browser: Browser, tmp_path: Path) -> None:
    _, records = busy_journal().since(0)
    writer = HistoryWriter(LocalHistory(tmp_path / FOLDER), 16 << 20)
    at_ms = records[-1]["at_ms"]
    writer.write([*records, ended(at_ms, "q", "")], at_ms)
    served = View(Feed(Recorded(str(tmp_path))))
    try:
        browser.open(served.url)
        assert "stopped" in browser.until_text("payments")
        assert browser.until(BATCH) == BATCHES - 1
        assert is_picture(shot(browser, tmp_path / "history.png"))
    finally:
        served.stop()


def shot(browser: Browser, path: Path) -> Path:
    browser.until(DRAWN)
    return browser.screenshot(path)


def is_picture(path: Path) -> bool:
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 20_000  # an empty page has some 5,000 bytes
