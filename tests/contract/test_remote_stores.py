"""Protects every store over shared storage that has no local files: with a disk cache, with a small one and
without one. Damage of fetched bytes is repaired, damage of the original is an error.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.blob.objects import ObjectBlobs
from headrace.blob.patient import PatientBlobs
from headrace.checkpoint.home import PartitionHome
from headrace.clock import SystemClock
from headrace.errors import StateCorrupt
from headrace.plan.spec import OperatorSpec
from headrace.testing import ManualClock
from headrace.testing.contracts.remote_lab import ROOMS, RemoteLab, Room
from headrace.testing.contracts.store_contract import SECOND, SESSION, SLIDE, check, folding, keeping
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel
from headrace.testing.faults.faulty_blobs import Outcome
from headrace.testing.faults.s3_server import S3Server, no_faults

SMALL = 1 << 14  # bytes of memory: rows are read from segments
CASES = {
    "lookups": folding(None, "changes"),
    "slices": folding(SLIDE, "final"),
    "kept rows": keeping(SLIDE),
    "sessions": keeping(SESSION),
}


def epochs(lab: StoreLab, model: StoreModel, numbers: range) -> None:
    for number in numbers:
        rows = [
            Row(key, number * SECOND + key * 1000, key + number) for key in range(0, 300, 1 + number % 3)
        ]
        check(lab, model, rows, (number - 4) * SECOND if model.spec.window else None)


@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS.keys())
@pytest.mark.parametrize("spec", CASES.values(), ids=CASES.keys())
def test_restarts_on_empty_machines_change_nothing(spec: OperatorSpec, room: Room, tmp_path: Path) -> None:
    lab, model = RemoteLab(spec, tmp_path, SMALL, room=room), StoreModel(spec)
    for begin in range(0, 12, 3):
        epochs(lab, model, range(begin, begin + 3))
        lab.compact()
        lab.reopen()
    assert lab.blobs.counts()["range"] > 0


@pytest.mark.parametrize("spec", CASES.values(), ids=CASES.keys())
def test_a_wrong_byte_on_the_way_is_fetched_again(spec: OperatorSpec, tmp_path: Path) -> None:
    """Every seventh reply has a flipped bit: what is cached fails its checksum, the original does not."""
    lab, model = RemoteLab(spec, tmp_path, SMALL), StoreModel(spec)
    epochs(lab, model, range(3))
    numbers = iter(range(10**6))

    def flip(name: str, reply: bytes) -> bytes:
        at = len(reply) // 2
        bad = next(numbers) % 7 == 3 and len(reply)
        return reply[:at] + bytes([reply[at] ^ 16]) + reply[at + 1 :] if bad else reply

    lab.blobs.cut = flip
    lab.reopen()
    epochs(lab, model, range(3, 8))


def test_a_wrong_byte_of_the_original_is_corrupt(tmp_path: Path) -> None:
    spec = folding(None, "changes")
    lab, model = RemoteLab(spec, tmp_path, SMALL), StoreModel(spec)
    epochs(lab, model, range(3))
    lab.blobs.cut = lambda name, reply: bytes(byte ^ 16 for byte in reply)
    with pytest.raises(StateCorrupt):
        lab.reopen()


def test_replies_that_are_cut_short_are_repeated(tmp_path: Path) -> None:
    spec = folding(None, "changes")
    lab, model = RemoteLab(spec, tmp_path, SMALL), StoreModel(spec)
    epochs(lab, model, range(3))
    numbers = iter(range(10**6))
    lab.blobs.cut = lambda name, reply: reply[: len(reply) // 2] if next(numbers) % 3 == 1 else reply
    lab.reopen()
    epochs(lab, model, range(3, 6))


def test_throttling_in_the_middle_of_a_batch_is_waited_out(tmp_path: Path) -> None:
    """On the S3 API: every third request is refused, and every seventh reply is lost."""
    spec = folding(None, "changes")
    with S3Server() as server, server.environment():
        blobs = PatientBlobs(ObjectBlobs.open(server.location("throttled")), ManualClock())
        lab, model = RemoteLab(spec, tmp_path, SMALL), StoreModel(spec)
        lab.home = PartitionHome.of(blobs, "p", SystemClock(), space=ROOMS["narrow disk"](tmp_path))
        lab.reopen()
        epochs(lab, model, range(3))
        numbers = iter(range(10**6))

        def weather(method: str, path: str) -> int | Outcome | None:
            number = next(numbers)
            if method != "GET":
                return None
            return 503 if number % 3 == 0 else Outcome.REPLY_LOST if number % 7 == 0 else None

        server.faults = weather
        for begin in (3, 6):
            lab.reopen()
            epochs(lab, model, range(begin, begin + 3))
        server.faults = no_faults
