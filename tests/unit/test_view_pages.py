"""Protects the live view in a real browser: loads, updates, shows hosts that end, operators, ended queries.

No request leaves the machine and nothing is served without the token. The browser tests need Debian's
chromium (`apt-get install chromium`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pyarrow as pa
import pytest
from progress_rows import START_MS, batch_record

from headrace.bench.page_client import reading
from headrace.monitor.door import Door, applications, ask, only
from headrace.monitor.history import FOLDER, HistoryWriter, LocalHistory
from headrace.monitor.journal import Journal
from headrace.monitor.records import Record, application, ended, event
from headrace.pages import state
from headrace.pages.feed import Elsewhere, Feed, Here, Recorded
from headrace.pages.series import LANES, lanes_of
from headrace.pages.server import View
from headrace.testing.browser.chromium import Browser, chromium
from headrace.wire.contract import Span

needs_browser = pytest.mark.skipif(chromium() is None, reason="chromium is not installed on this machine")

BATCH = "globalThis.Bokeh?.documents[0]?.get_model_by_name('batches')?.data.batch.at(-1)"


def facts(checkpoint: str = "file:/ck") -> list[Record]:
    operator = {
        "query": "q",
        "operator": "counts",
        "work": "an aggregate",
        "keys": ["user"],
        "window": "tumbling, 1 min",
        "emit": "final",
        "store": "rmw",
        "reason": "each row changes one state row",
        "partitions": 2,
        "location": "/state",
    }
    return [
        application(START_MS, "app-1", "shop"),
        {
            "kind": "query",
            "at_ms": START_MS,
            "query": "q",
            "run": "r",
            "name": "payments",
            "checkpoint": checkpoint,
        },
        {"kind": "operator", "at_ms": START_MS, **operator},
    ]


@pytest.fixture
def journal() -> Journal:
    made = Journal()
    for record in [*facts(), *(batch_record(number) for number in range(12))]:
        made.add(record)
    return made


@pytest.fixture
def view(journal: Journal) -> Iterator[View]:
    served = View(Feed(Here(journal)))
    yield served
    served.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


def status(url: str) -> int:
    try:
        with urlopen(url) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_nothing_is_served_without_the_token(view: View) -> None:
    root = view.url[: view.url.index("/", 8)]
    assert status(view.url) == 200
    for path in ("/", "/wrong/", "/operator", "/static/js/bokeh.min.js", "/ws", "/autoload.js"):
        assert status(root + path) == 404, path
    assert view.url in view._repr_html_()


@needs_browser
def test_a_page_loads_updates_and_asks_nobody_else(view: View, journal: Journal, browser: Browser) -> None:
    browser.open(view.url)
    text = browser.until_text("payments")
    assert "running" in text
    assert "async commits" in text
    assert browser.until(BATCH) == 10, "the newest batch waits for what its commit does behind the next one"
    journal.add(batch_record(12))
    journal.add(event(START_MS + 13_000, "host a", "warning", "the host ended (pid 7)", "see its log"))
    assert browser.until(BATCH, lambda batch: batch == 11)
    assert "see its log" in browser.until_text("the host ended (pid 7)")
    assert browser.hosts == {"127.0.0.1"}
    assert browser.errors == []


def test_the_benchmarks_client_has_the_page_and_its_changes(view: View, journal: Journal) -> None:
    with reading(view.url) as output:
        journal.add(batch_record(12))
        assert output.readline() == "changed\n"


def test_lanes_for_reads_ahead_are_there_where_they_happen(journal: Journal) -> None:
    feed = Feed(Here(journal))
    assert lanes_of(feed.picture().query()) == LANES
    spans = (Span("read", START_MS, START_MS + 5), Span("prefetch", START_MS - 9, START_MS))
    journal.add(batch_record(12, spans=spans))
    assert lanes_of(Feed(Here(journal)).picture().query()) == (*LANES[:-2], "prefetch", *LANES[-2:])


@needs_browser
def test_a_new_operator_and_the_end_of_a_query_are_shown(
    view: View, journal: Journal, browser: Browser
) -> None:
    browser.open(view.url)
    browser.until(BATCH)
    journal.add(batch_record(12, operator="joined"))
    browser.until_text("2 operators")
    journal.add(ended(START_MS + 14_000, "q", "it broke"))
    assert "The query has failed." in browser.until_text("failed")


@needs_browser
def test_an_operator_has_a_page_with_its_state_by_key(
    view: View, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"user": ["ann", "bob"], "n": [3, 4]})
    rows = state.Rows(["user"], [], table.to_batches())
    monkeypatch.setattr(state, "opened", lambda *_: (one for one in [rows]))
    browser.open(f"{view.url}operator?query=q&operator=counts")
    text = browser.until_text("each row changes one state row")
    assert "tumbling, 1 min" in text
    assert "the fullest, partition 1, got 1.33 times the mean rows" in text
    browser.until("globalThis.Bokeh?.documents[0]?.get_model_by_name('key') !== undefined")
    browser.js("Bokeh.documents[0].get_model_by_name('key').value = 'bob'")
    assert "ann" not in browser.until_text("1 rows shown, 2 looked at")


@needs_browser
def test_a_history_opens_without_its_application(tmp_path: Path, browser: Browser) -> None:
    writer = HistoryWriter(LocalHistory(tmp_path / FOLDER), 1 << 20)
    batches = [batch_record(number) for number in range(5)]
    writer.write([*facts(), *batches, ended(START_MS + 9000, "q", "")], START_MS)
    served = View(Feed(Recorded(str(tmp_path))))
    try:
        browser.open(served.url)
        assert "stopped" in browser.until_text("payments")
        assert browser.until(BATCH) == 4, "an ended query has no batch that may still change"
    finally:
        served.stop()


def test_another_process_of_the_user_finds_the_application(tmp_path: Path, journal: Journal) -> None:
    door = Door(tmp_path / "app-1", "app-1", "shop", journal)
    try:
        application = only(applications(tmp_path), tmp_path)
        assert (application.application, application.name) == ("app-1", "shop")
        last, records = ask(application.socket, 0)
        assert (last, len(records)) == (15, 15)
        assert ask(application.socket, last) == (15, [])
        feed = Feed(Elsewhere(application.socket))
        assert list(feed.picture().queries) == ["q"]
        assert (tmp_path / "app-1").stat().st_mode & 0o077 == 0
    finally:
        door.close()
    assert applications(tmp_path) == []
    assert list((tmp_path / "app-1").iterdir()) == []


def test_rows_of_state_are_escaped() -> None:
    html = state.rendered(pa.table({"user": ["<script>"]}).to_batches(), 1)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
