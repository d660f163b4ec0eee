"""An embedded Spark for commands that run queries: kernels, session, log file and live picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from headrace.clock import SystemClock

if TYPE_CHECKING:
    from headrace.pages.feed import Feed

CLOCK = SystemClock()


def compile_kernels(console: Console) -> None:
    """Make the kernels ready, so that the first batch does not wait for the compiler."""
    from headrace.kernels.warm import warm

    began = CLOCK.monotonic_ms()
    with console.status("compiling kernels: half a minute after an installation, else a second"):
        warm()
    console.print(f"kernels are ready ({(CLOCK.monotonic_ms() - began) / 1000:.1f} s)")


@contextmanager
def session(console: Console, out: Path, name: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """An embedded Spark with its files under `out`."""
    from headrace.bench.common.session import local_session

    began = CLOCK.monotonic_ms()
    with console.status("starting Spark"):
        opened = local_session(name, out / "scratch", settings=settings)
        spark = opened.__enter__()
    console.print(f"Spark {spark.version} is up ({(CLOCK.monotonic_ms() - began) / 1000:.1f} s)")
    try:
        yield spark
    finally:
        opened.__exit__(None, None, None)


@contextmanager
def quiet(out: Path) -> Iterator[Path]:
    """Send what the JVM and Spark's workers print to a file: they inherit standard error from here."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "spark.log"
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield path
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def feed_of(spark: Any) -> Feed:
    """The live picture of the Spark application."""
    from headrace.pages.feed import Feed, Here
    from headrace.spark.build.recipe import session_options
    from headrace.spark.driver.driver import coordinator_for

    return Feed(Here(coordinator_for(spark).monitor(session_options(spark)).journal))
