"""The state hosts of a local folder, as processes: to suspend or end those of one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def hosts_of(local: Path) -> Iterator[psutil.Process]:
    for alive in local.glob("*/host-*.alive"):
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(int(alive.read_text()))
