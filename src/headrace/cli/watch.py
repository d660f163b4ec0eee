"""`headrace view` and `headrace top`: a running application of this machine, or the history of a query."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live

from headrace.cli.terminal import screen
from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.monitor.door import applications, only
from headrace.pages.feed import Elsewhere, Feed, Recorded
from headrace.plan.options import default_local

Say = Callable[[str], None]

REFRESH_MS = 1000


def feed_of(checkpoint: str | None, local: Path | None, application: str) -> Feed:
    """The history of a checkpoint, or the application that runs."""
    if checkpoint:
        return Feed(Recorded(checkpoint))
    folder = local or Path(default_local())
    return Feed(Elsewhere(only(applications(folder), folder, application).socket))


def view(
    checkpoint: str | None, local: Path | None, application: str, port: int, say: Say, *, browser: bool
) -> int:
    """Serve the pages until the user interrupts; the exit code."""
    try:
        from headrace.pages.server import View

        feed = feed_of(checkpoint, local, application)
        feed.picture()
        served = View(feed, port)
    except HeadraceError as error:
        say(str(error))
        return 1
    say(f"{served.url}\n  → open it in a browser of this machine; Ctrl-C ends it")
    if browser:
        webbrowser.open(served.url)
    try:
        while True:
            SystemClock().sleep_ms(REFRESH_MS)
    except KeyboardInterrupt:
        served.stop()
    return 0


def top(checkpoint: str | None, local: Path | None, application: str, say: Say, *, once: bool) -> int:
    """Show the application in the terminal until it ends or the user interrupts; the exit code."""
    try:
        feed = feed_of(checkpoint, local, application)
        feed.picture()
    except HeadraceError as error:
        say(str(error))
        return 1
    console = Console()
    if once or checkpoint or not console.is_terminal:
        console.print(screen(feed.picture(), console.width, live=feed.live))
        return 0
    try:
        with Live(console=console, screen=True, auto_refresh=False) as shown:
            while feed.live:
                shown.update(screen(feed.picture(), console.width, live=True), refresh=True)
                SystemClock().sleep_ms(REFRESH_MS)
        say("the application has ended; headrace top <checkpoint> shows what it did")
    except KeyboardInterrupt:
        pass
    return 0
