"""Protects the simulation itself: where a check of the commit protocol is missing, some seed fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.checkpoint import log, log_check, runs
from headrace.coordinator.placing.pins import Pins
from headrace.host.state import opening, partition, run_guard, transaction
from headrace.testing.simulation.many import run_seeds

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # hosts that died closed nothing

CHUNK, MOST = 20, 400  # seeds at a time, and at most


def nothing(*_: Any, **__: Any) -> None:
    """A check that checks nothing."""


def never(*_: Any) -> bool:
    return False


def always(*_: Any) -> bool:
    return True


CHECKS: dict[str, tuple[Any, str, Any]] = {
    "an entry of a newer start refuses an older one's": (log.Draft, "_refuse_newer", nothing),
    "a newer claim of a partition fences an older one": (partition.Claim, "__lt__", never),
    "a fenced transaction stops": (transaction.PartitionTransaction, "check", nothing),
    "a commit looks at the runs": (run_guard.RunGuard, "check", nothing),
    "a start that was overtaken claims no run": (runs, "ensure_current", nothing),
    "an entry in the log counts before an older version on storage": (opening, "precedes", never),
    "an entry that is recovered is whole": (log_check, "_is_whole", always),
    "an entry has a checksum": (log, "zlib", SimpleNamespace(crc32=lambda *_: 0)),
    "a version that is in a log only keeps its partition there": (Pins, "holds", never),
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_missing_check_is_noticed(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement = CHECKS[check]
    monkeypatch.setattr(owner, name, replacement)
    for first in range(0, MOST, CHUNK):
        if run_seeds(range(first, first + CHUNK)).failed:
            return
    pytest.fail(f"no seed below {MOST} fails without it")
