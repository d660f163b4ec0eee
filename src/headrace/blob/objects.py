"""Blobs as objects of S3, of a store compatible with it, or of Azure.

Put-if-absent is a conditional put (`If-None-Match: *`). Objects have no local path: `blob/cached.py`
keeps copies of them, and `files/partial.py` reads ranges.

Invariants: each call makes one request and no retry, so that an error is about this request alone
(`PatientBlobs` repeats).
Threads: any.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, S3Store

from headrace.blob.base import IsDamaged, Range, always, check_name, check_prefix
from headrace.blob.clouds import S3, Cloud, cloud_of
from headrace.blob.object_errors import is_container_missing, is_past_end, translated
from headrace.blob.unfinished import hidden_name
from headrace.errors import AlreadyExists, BlobMissing, SettingError
from headrace.plan.times import TIMES

CHUNK_BYTES = 8 << 20  # bytes per upload part
WHOLE_BYTES = 16 << 20  # up to this size a file is one conditional request; parts cannot be conditional
PARTS_AT_A_TIME = 2
T = TypeVar("T")


class ObjectBlobs:
    """A location `s3://bucket/prefix` or `az://container/prefix`."""

    in_place = False

    def __init__(self, store: Any, root: str, cloud: Cloud) -> None:
        self._store, self._root, self._cloud = store, root, cloud

    @classmethod
    def open(cls, location: str, environment: Mapping[str, str] = os.environ) -> ObjectBlobs:
        """Opens the location; no request is made yet."""
        cloud, container, prefix = split_location(location)
        return cls(_store(cloud, container, prefix, environment), location.rstrip("/"), cloud)

    @property
    def root(self) -> str:
        return self._root

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._request("write", name, lambda: self._put(check_name(name), bytes(data)), writing=True)

    def staging(self, name: str) -> Path:
        check_name(name)
        return Path(tempfile.gettempdir()) / hidden_name()

    def put_file(self, name: str, path: Path) -> None:
        check_name(name)
        if path.stat().st_size <= WHOLE_BYTES:
            self._request("write", name, lambda: self._put(name, path), writing=True)
        else:
            self._put_parts(name, path)
        with contextlib.suppress(OSError):  # the object exists: a leftover source does no harm
            path.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        check_name(name)
        return self._request("read", name, lambda: obstore.get(self._store, name).bytes().to_bytes())

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_name(name)

        def read() -> bytes:
            try:
                return obstore.get_range(self._store, name, start=start, length=length).to_bytes()
            except BaseError as error:
                if is_past_end(error):
                    return b""
                raise

        return self._request("read", name, read) if length else b""

    ranges_at_once = 10  # of one call of the client

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        """A range past the end fails the whole call: then each is read by itself."""
        check_name(name)
        starts, lengths = [start for start, _ in ranges], [length for _, length in ranges]

        def read() -> builtins.list[bytes]:
            try:
                replies = obstore.get_ranges(self._store, name, starts=starts, lengths=lengths, coalesce=0)
                return [reply.to_bytes() for reply in replies]
            except BaseError as error:
                if is_past_end(error):
                    return [self.get_range(name, start, length) for start, length in ranges]
                raise

        return self._request("read", name, read) if ranges else []

    def size(self, name: str) -> int:
        check_name(name)
        return self._request("read", name, lambda: int(obstore.head(self._store, name)["size"]))

    def list(self, prefix: str) -> list[str]:
        folder = check_prefix(prefix)

        def names() -> list[str]:
            pages = obstore.list(self._store, f"{folder}/" if folder else None)
            return [item["path"] for chunk in pages for item in chunk]

        return sorted(name for name in self._request("list", prefix, names) if name.startswith(prefix))

    def delete(self, name: str) -> None:
        check_name(name)
        self._request("delete", name, lambda: self._delete(name))

    def sweep(self, prefix: str) -> None:
        """Does nothing: an unfinished upload has no name, and the store removes it."""
        check_prefix(prefix)

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        check_name(name)
        return False

    def _put(self, name: str, data: bytes | Path) -> None:
        obstore.put(self._store, name, data, mode="create", use_multipart=False)

    def _put_parts(self, name: str, path: Path) -> None:
        """Uploads a large file in bounded memory. One attempt owns the name, so a check before the upload
        is enough.
        """
        with contextlib.suppress(BlobMissing):
            self.size(name)
            raise AlreadyExists(f"{self._where(name)} already exists", hint="read it back and compare")

        def upload() -> None:
            obstore.put(
                self._store,
                name,
                path,
                use_multipart=True,
                chunk_size=CHUNK_BYTES,
                max_concurrency=PARTS_AT_A_TIME,
            )

        self._request("write", name, upload, writing=True)

    def _delete(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError as error:
            if is_container_missing(error):
                raise

    def _request(self, action: str, name: str, request: Callable[[], T], *, writing: bool = False) -> T:
        try:
            return request()
        except (BaseError, FileNotFoundError) as error:
            raise translated(error, action, self._where(name), self._cloud, writing=writing) from None

    def _where(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def split_location(location: str) -> tuple[Cloud, str, str]:
    """Cloud, bucket and prefix of `s3://bucket/prefix`."""
    cloud, parts = cloud_of(location), urlsplit(location)
    if cloud is None or not parts.netloc:
        raise SettingError(
            f"{location} is not a location", hint="write s3://bucket/prefix or az://container/prefix"
        )
    return cloud, parts.netloc, parts.path.strip("/")


def _config(cloud: Cloud, environment: Mapping[str, str]) -> Any:
    """The settings of an environment that is not this process's own, which the client reads by itself."""
    config = {name: environment[name] for name in cloud.variables if environment.get(name)}
    endpoint = cloud.endpoint(environment)
    return {**config, cloud.endpoint_variables[-1]: endpoint} if endpoint else config


def _store(cloud: Cloud, container: str, prefix: str, environment: Mapping[str, str]) -> Any:
    """The store by the environment: the cloud's variables, or the role of container or machine."""
    cloud.check(environment)
    store = partial(S3Store, disable_bulk_delete=True) if cloud is S3 else AzureStore
    return store(
        container,
        prefix=prefix or None,
        config={} if environment is os.environ else _config(cloud, environment),
        client_options={
            "allow_http": cloud.endpoint(environment).startswith("http:"),
            "timeout": timedelta(seconds=TIMES.storage_request_s),
            "connect_timeout": timedelta(seconds=TIMES.storage_connect_s),
        },
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=TIMES.storage_request_s)},
    )
