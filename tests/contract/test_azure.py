"""Protects state on Azure's storage, against Azurite: the storage contract over real HTTP, and what its
failures mean. Skipped where no `azurite-blob` is installed.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.blob import objects
from headrace.blob.base import Blobs
from headrace.blob.cached import CachedBlobs
from headrace.blob.clouds import AZURE
from headrace.blob.copies import LocalCopies
from headrace.blob.locations import Locations
from headrace.blob.object_errors import translated
from headrace.blob.objects import ObjectBlobs, split_location
from headrace.errors import AlreadyExists, SettingError, StateMissing, TryAgain
from headrace.testing.contracts.blob_contract import BlobsContract
from headrace.testing.faults.azurite import CONTAINER, Azurite, is_installed

needs_azurite = pytest.mark.skipif(not is_installed(), reason="azurite-blob is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[Azurite]:
    with Azurite() as server, server.environment():
        yield server


@pytest.fixture
def blobs(server: Azurite, tmp_path: Path) -> ObjectBlobs:
    """A location of one test; its last part is the test's own folder."""
    return ObjectBlobs.open(server.location(f"state/{tmp_path.name}"))


@needs_azurite
class TestAzureBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, blobs: ObjectBlobs) -> Blobs:
        return blobs


@needs_azurite
class TestCachedAzureBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, blobs: ObjectBlobs, tmp_path: Path) -> Blobs:
        return CachedBlobs(blobs, LocalCopies.open(tmp_path / "local", blobs.root))


@needs_azurite
def test_one_of_many_writers_of_a_name_succeeds(blobs: ObjectBlobs) -> None:
    def put(number: int) -> int | None:
        try:
            blobs.put_if_absent("m", str(number).encode())
        except AlreadyExists:
            return None
        return number

    with ThreadPoolExecutor(16) as pool:
        winners = [number for number in pool.map(put, range(48)) if number is not None]
    assert len(winners) == 1
    assert blobs.get("m") == str(winners[0]).encode()


@needs_azurite
def test_a_list_shows_every_put_over_many_pages(blobs: ObjectBlobs) -> None:
    names = [f"p/{number:05}" for number in range(5200)]  # a page has 5000
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: blobs.put_if_absent(name, b"x"), names))
    assert blobs.list("p/") == names
    blobs.delete(names[0])
    assert blobs.list("p/0000") == names[1:10]


@needs_azurite
def test_large_files_go_up_in_parts(
    blobs: ObjectBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "WHOLE_BYTES", 1 << 20)
    data, path = os.urandom(9 << 20), tmp_path / "large"
    path.write_bytes(data)
    blobs.put_file("p/s", path)
    assert blobs.size("p/s") == len(data)
    assert blobs.get_range("p/s", 8 << 20, 100) == data[8 << 20 :][:100]
    assert blobs.get_range("p/s", len(data) - 5, 100) == data[-5:]
    path.write_bytes(data)
    with pytest.raises(AlreadyExists):
        blobs.put_file("p/s", path)


@needs_azurite
def test_a_missing_container_is_named(server: Azurite) -> None:
    blobs = ObjectBlobs.open("az://not-there/p")
    calls = [lambda: blobs.list(""), lambda: blobs.get("x"), lambda: blobs.put_if_absent("x", b"")]
    calls.append(lambda: blobs.delete("x"))
    for call in calls:
        with pytest.raises(StateMissing, match="container not-there does not exist") as error:
            call()
        assert "AZURE_STORAGE_ACCOUNT_NAME" in error.value.hint


@needs_azurite
def test_a_wrong_key_is_refused(server: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
    blobs = ObjectBlobs.open(server.location("p"))
    with pytest.raises(SettingError, match=r"not allowed to read[\s\S]*AZURE_STORAGE_ACCOUNT_NAME"):
        blobs.get("x")


@needs_azurite
def test_the_environment_of_executors_counts(
    server: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reads `spark.executorEnv.*`, which its own environment does not have."""
    for name in server.variables:
        monkeypatch.delenv(name)
    environment = ChainMap(dict(server.variables), os.environ)
    blobs = Locations(tmp_path, environment=environment).open(server.location("env"), create=True)
    blobs.put_if_absent("x", b"1")
    assert blobs.get("x") == b"1"


# ── without a server ─────────────────────────────────────────────────────────────────────────


def test_a_location_without_an_account_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(SettingError, match=r"storage account[\s\S]*AZURE_STORAGE_ACCOUNT_NAME"):
        ObjectBlobs.open(f"az://{CONTAINER}/p")


def test_nothing_goes_over_the_network_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "a")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://192.0.2.1:10000/a")
    with pytest.raises(SettingError, match="unencrypted"):
        ObjectBlobs.open("az://c/p")


def test_an_endpoint_without_a_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "a")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1/a")
    with pytest.raises(TryAgain, match="no answer from its endpoint"):
        ObjectBlobs.open("az://c/p").put_if_absent("x", b"")


def test_copies_of_two_accounts_are_two(tmp_path: Path) -> None:
    folders = set()
    for account in ("one", "two"):
        environment = {"AZURE_STORAGE_ACCOUNT_NAME": account}
        blobs = Locations(tmp_path, environment=environment).open("az://c/p", create=True)
        folders.add(blobs.staging("x").parent)
    assert len(folders) == 2


def test_a_busy_server_has_written_nothing() -> None:
    text = "Server returned non-2xx status code: 503 Service Unavailable: <Code>ServerBusy</Code>"
    error = translated(RuntimeError(text), "write", "az://c/p/x", AZURE, writing=True)
    assert type(error) is TryAgain


def test_locations_are_containers_and_prefixes() -> None:
    assert split_location("az://c/p/q/") == (AZURE, "c", "p/q")
