"""Protects `headrace state` and `headrace doctor`: what they print is what was committed, and a file that
is damaged, cut or gone is found and named, with what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from headrace.blob.locations import Locations
from headrace.checkpoint.records import OperatorRecord, record_name
from headrace.cli.main import app
from headrace.host.state.service import PartitionService
from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec, StoreName
from headrace.testing.contracts.store_model import Row, batch_of, name_of
from headrace.wire.contract import Ticket

SPEC = OperatorSpec(
    name="totals",
    keys=(Field("k0", "string", "user"),),
    inputs=(Field("v0", "int64", "amount"),),
    work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)


def committed(folder: Path, spec: OperatorSpec = SPEC) -> Path:
    """A checkpoint of three batches: keys 0 to 9, then 0 to 4, then key 10 alone."""
    checkpoint, location = folder / "ck", str(folder / "ck" / "headrace-state")
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"q"}')
    service = PartitionService(64 << 20, Locations(folder / "local"))
    for number, keys in enumerate((range(10), range(5), range(10, 11))):
        base = None if number == 0 else number - 1
        transaction = service.begin(Ticket("start", "q", spec, 0, number, base, 1, location, 20))
        transaction.apply(batch_of(spec, [Row(key, 0, 1) for key in keys]))
        list(transaction.finish([]))
        transaction.commit()
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    service.close()
    record = checkpoint / record_name("totals")
    record.parent.mkdir()
    record.write_text(OperatorRecord(location, spec, (0, 1, 2)).to_json())
    return checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return committed(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_ls_lists_operators_and_versions(checkpoint: Path) -> None:
    (operator,) = lines(run("state", "ls", checkpoint, "--json"))
    assert (operator["operator"], operator["versions"], operator["rows"]) == ("totals", [0, 1, 2], 11)
    versions = lines(run("state", "ls", checkpoint, "totals", "--json"))
    assert [(row["version"], row["rows"]) for row in versions] == [(0, 10), (1, 10), (2, 11)]
    assert "totals" in run("state", "ls", checkpoint).stdout


def test_show_gives_rows_of_a_version_and_of_a_key(checkpoint: Path) -> None:
    rows = lines(run("state", "show", checkpoint, "totals", "--json", "--limit", 0, "--version", 1))
    expected = {name_of(key): (2 if key < 5 else 1) for key in range(10)}
    assert {row["user"]: row["count"] for row in rows} == expected
    assert len(lines(run("state", "show", checkpoint, "totals", "--json", "--limit", 3))) == 3


def test_diff_gives_inserts_and_updates(checkpoint: Path) -> None:
    changes = lines(run("state", "diff", checkpoint, "totals", 1, "--json"))
    assert [(row["change"], row["user"]) for row in changes] == [("insert", name_of(10))]
    updates = lines(run("state", "diff", checkpoint, "totals", 0, 1, "--json"))
    assert {(row["change"], row["user"]) for row in updates} == {("update", name_of(k)) for k in range(5)}


def test_export_writes_a_table(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "totals.parquet"
    assert run("state", "export", checkpoint, "totals", out).exit_code == 0
    assert pq.read_table(out).num_rows == 11
    assert "is there already" in run("state", "export", checkpoint, "totals", out).output


def test_stats_counts_rows_and_what_may_go(checkpoint: Path) -> None:
    (stats,) = lines(run("state", "stats", checkpoint, "totals", "--json"))
    assert (stats["version"], stats["rows"], len(stats["partitions"])) == (2, 11, 1)  # type: ignore[arg-type]
    assert stats["collectable"] == {"files": 0, "bytes": 0}
    assert "version 2, 11 rows" in run("state", "stats", checkpoint, "totals").stdout


def test_an_error_ends_with_what_to_do(checkpoint: Path, tmp_path: Path) -> None:
    result = run("state", "show", checkpoint, "total")
    assert result.exit_code == 1
    assert "did you mean totals?" in result.output
    assert "checkpointLocation" in run("state", "ls", tmp_path / "nothing").output
    assert "column=value" in run("state", "show", checkpoint, "totals", "--key", "user").output


@pytest.mark.parametrize("store", ["rmw", "rocksdb"])
def test_doctor_finds_nothing_wrong_with_what_was_committed(tmp_path: Path, store: StoreName) -> None:
    result = run("doctor", committed(tmp_path, replace(SPEC, store=store)))
    assert result.exit_code == 0, result.output
    assert "the state is whole" in result.stdout


def segments(checkpoint: Path) -> list[Path]:
    return sorted(checkpoint.glob("headrace-state/q/totals/p0000/segments/*.segment"))


def report(checkpoint: Path) -> list[tuple[str, str]]:
    result = run("doctor", checkpoint, "--json")
    assert result.exit_code == 1, result.output
    return [(one["level"], one["what"] + one["remedy"]) for one in json.loads(result.stdout)["findings"]]


@pytest.mark.parametrize("store", ["rmw", "rocksdb"])
def test_doctor_finds_a_single_wrong_byte_anywhere(tmp_path: Path, store: StoreName) -> None:
    checkpoint = committed(tmp_path, replace(SPEC, store=store))
    victim = segments(checkpoint)[0]
    whole = victim.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        victim.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        ((level, text),) = report(checkpoint)
        assert level == "damage"
        assert victim.name in text
        assert "backup" in text
    victim.write_bytes(whole)
    assert run("doctor", checkpoint).exit_code == 0


def test_doctor_names_the_versions_that_a_lost_file_takes(checkpoint: Path) -> None:
    segments(checkpoint)[-1].unlink()
    ((level, text),) = report(checkpoint)
    assert level == "missing"
    assert "needed by versions 2" in text
    assert "version 1 is whole" in text


def test_doctor_finds_a_base_that_is_not_on_storage(checkpoint: Path) -> None:
    for manifest in checkpoint.glob("headrace-state/q/totals/p0000/manifests/v000000000002-*"):
        manifest.unlink()
    findings = report(checkpoint)
    assert ("missing", True) in [(level, "headrace recover" in text) for level, text in findings]


def test_doctor_finds_a_damaged_manifest_and_record(checkpoint: Path) -> None:
    manifest = next(checkpoint.glob("headrace-state/q/totals/p0000/manifests/v000000000001-*"))
    manifest.write_bytes(manifest.read_bytes()[:-3])
    (checkpoint / "headrace-state/q/totals/operator.json").write_text("nothing")
    assert [level for level, _ in report(checkpoint)].count("damage") == 2
