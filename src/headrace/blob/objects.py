"""Blobs as objects of an S3-compatible store. An object that is used as a file has a local copy.

Put-if-absent is S3's conditional put (`If-None-Match: *`). An uploaded file stays on the local disk as its
copy. A file of another host is downloaded once. Small objects that are read as bytes, such as manifests,
have no copy.

Invariants: each call makes one request and no retry, so that an error is about this request alone
(`PatientBlobs` repeats). Only an object that is in the store gets a local copy.
Threads: any.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from headrace.blob.base import IsDamaged, always, check_name, check_prefix
from headrace.blob.copies import LocalCopies
from headrace.blob.object_errors import translated
from headrace.errors import AlreadyExists, BlobMissing, SettingError, TryAgain
from headrace.plan.times import TIMES

log = logging.getLogger("headrace.blob")

CHUNK_BYTES = 8 << 20  # bytes per download request and per upload part
WHOLE_BYTES = 16 << 20  # up to this size a file is one conditional request; parts cannot be conditional
PARTS_AT_A_TIME = 2
_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
T = TypeVar("T")


class ObjectBlobs:
    """A location `s3://bucket/prefix`."""

    def __init__(self, store: Any, root: str, copies: LocalCopies) -> None:
        self._store, self._root, self._copies = store, root, copies

    @classmethod
    def open(
        cls, location: str, copies: LocalCopies, environment: Mapping[str, str] = os.environ
    ) -> ObjectBlobs:
        """Opens the location; no request is made yet."""
        bucket, prefix = split_location(location)
        return cls(_store(bucket, prefix, environment), location.rstrip("/"), copies)

    @property
    def root(self) -> str:
        return self._root

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._request("write", name, lambda: self._put(check_name(name), bytes(data)), writing=True)

    def staging(self, name: str) -> Path:
        return self._copies.staging(check_name(name))

    def put_file(self, name: str, path: Path) -> None:
        check_name(name)
        if path.stat().st_size <= WHOLE_BYTES:
            self._request("write", name, lambda: self._put(name, path), writing=True)
        else:
            self._put_parts(name, path)
        try:
            self._copies.keep(name, path)
        except TryAgain as error:  # the object is in the store, so the write has succeeded
            log.warning("%s has no local copy yet: %s", self._where(name), error)
            path.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        check_name(name)
        return self._request("read", name, lambda: obstore.get(self._store, name).bytes().to_bytes())

    def size(self, name: str) -> int:
        """Also drops a local copy of another size: a restore calls this before it opens files."""
        check_name(name)
        size = self._request("read", name, lambda: int(obstore.head(self._store, name)["size"]))
        self._copies.drop_unless_size(name, size)
        return size

    def list(self, prefix: str) -> list[str]:
        folder = check_prefix(prefix)

        def names() -> list[str]:
            pages = obstore.list(self._store, f"{folder}/" if folder else None)
            return [item["path"] for chunk in pages for item in chunk]

        return sorted(name for name in self._request("list", prefix, names) if name.startswith(prefix))

    def delete(self, name: str) -> None:
        check_name(name)
        self._request("delete", name, lambda: self._delete(name))
        self._copies.drop(name)

    def sweep(self, prefix: str) -> None:
        """Also drops copies of objects that another host has deleted.

        Copies are listed before objects. A listed copy was in the store then, so a later listing without it
        means that the object was deleted.
        """
        folder = check_prefix(prefix)
        self._copies.sweep(folder)
        copies = self._copies.names(folder)
        for deleted in set(copies).difference(self.list(f"{folder}/" if folder else "")) if copies else ():
            self._copies.drop(deleted)

    def local_path(self, name: str) -> Path | None:
        return self._copies.use(check_name(name)) or self._download(name)

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        path = self._copies.use(check_name(name))
        if path is None or not is_damaged(path):
            return False
        log.warning("the local copy %s is damaged and is downloaded again", path)
        self._copies.drop(name)
        return True

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
            if "NoSuchBucket" in str(error):
                raise

    def _download(self, name: str) -> Path:
        size = self.size(name)
        staged = self._copies.staging(name)
        try:
            with open(staged, "wb") as file:
                for start in range(0, size, CHUNK_BYTES):
                    file.write(self._part(name, start, min(CHUNK_BYTES, size - start)))
            return self._copies.keep(name, staged)
        except OSError as error:
            raise TryAgain(
                f"cannot write the local copy {staged}: {error.strerror or error}",
                hint="free space there, or set spark.headrace.state.local to another directory",
            ) from error
        finally:
            staged.unlink(missing_ok=True)

    def _part(self, name: str, start: int, length: int) -> bytes:
        def read() -> bytes:
            return obstore.get_range(self._store, name, start=start, length=length).to_bytes()

        part = self._request("read", name, read)
        if len(part) != length:
            raise TryAgain(f"{self._where(name)} was cut short at byte {start + len(part)}")
        return part

    def _request(self, action: str, name: str, request: Callable[[], T], *, writing: bool = False) -> T:
        try:
            return request()
        except (BaseError, FileNotFoundError) as error:
            raise translated(error, action, self._where(name), writing=writing) from None

    def _where(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def split_location(location: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`."""
    parts = urlsplit(location)
    if parts.scheme != "s3" or not parts.netloc:
        raise SettingError(f"{location} is not a location", hint="say s3://bucket/prefix")
    return parts.netloc, parts.path.strip("/")


def endpoint_of(environment: Mapping[str, str]) -> str:
    """The endpoint of the store; empty for that of AWS."""
    return environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""


def _config(environment: Mapping[str, str]) -> Any:
    """The settings of an environment that is not this process's own, which the client reads by itself."""
    config = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    endpoint = endpoint_of(environment)
    return {**config, "AWS_ENDPOINT_URL": endpoint} if endpoint else config


def _store(bucket: str, prefix: str, environment: Mapping[str, str]) -> Any:
    """The store by the environment: `AWS_…` variables, container or instance role."""
    endpoint = endpoint_of(environment)
    plain = environment.get("AWS_ALLOW_HTTP", "").lower() == "true"
    if endpoint.startswith("http:") and not (plain or urlsplit(endpoint).hostname in _LOOPBACK):
        raise SettingError(
            f"{endpoint} would send state and credentials unencrypted",
            hint="use https, or set AWS_ALLOW_HTTP=true in the environment of the executors",
        )
    return S3Store(
        bucket,
        prefix=prefix or None,
        config={} if environment is os.environ else _config(environment),
        disable_bulk_delete=True,
        client_options={
            "allow_http": endpoint.startswith("http:"),
            "timeout": timedelta(seconds=TIMES.storage_request_s),
            "connect_timeout": timedelta(seconds=TIMES.storage_connect_s),
        },
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=TIMES.storage_request_s)},
    )
