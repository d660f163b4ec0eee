"""Blobs as files under one directory of a file system.

A blob is written to a hidden temporary file beside its final path, synced to the disk, then *linked* to its
name: a hard link is atomic and refuses an existing name. Then the directory is synced too.

Invariants: a visible name has all its bytes on disk. Hidden files are never listed. Only
`open(create=True)` makes the root directory, so a removed root is an error and not an empty location.
Threads: any; all state is in the file system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.blob.base import IsDamaged, Range, always, check_name, check_prefix
from headrace.blob.unfinished import hidden_name, is_alive, is_left_behind, this_machine
from headrace.errors import AlreadyExists, BlobMissing, HeadraceError, MaybeApplied, StateMissing, TryAgain

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})
_HINTS = {
    errno.ENOSPC: "free space on that file system; nothing was lost, the batch is tried again",
    errno.EDQUOT: "raise the quota or free space; nothing was lost, the batch is tried again",
    errno.EACCES: "let the user that runs Spark read and write the state location",
    errno.EROFS: "mount the file system writable, or set spark.headrace.state.location elsewhere",
}


class FileBlobs:
    """A location on a local or mounted file system."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @classmethod
    def open(cls, root: Path, *, create: bool) -> FileBlobs:
        """Opens the location at `root`; only `create` makes a missing directory."""
        if create:
            try:
                _make_directories(Path(root.anchor), root)
            except OSError as error:
                raise _failed("create", root, error) from error
        if not root.is_dir():
            raise _root_missing(root)
        return cls(root)

    @property
    def root(self) -> str:
        return str(self._root)

    in_place = True

    def put_if_absent(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with self._writing(path), self._temporary(path) as temporary:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._bind(temporary, path)

    def staging(self, name: str) -> Path:
        path = self._path(name)
        with self._writing(path):
            self._make_parent(path)
        return _hidden_beside(path)

    def put_file(self, name: str, path: Path) -> None:
        target = self._path(name)
        with self._writing(target):
            self._make_parent(target)
            _sync(path)
            try:
                self._bind(path, target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(path, target)
        with contextlib.suppress(OSError):  # the blob exists: a leftover source does no harm
            path.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        with self._reading(name) as path:
            return path.read_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with self._reading(name) as path, open(path, "rb") as file:
            return os.pread(file.fileno(), length, start)

    ranges_at_once = 1

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        with self._reading(name) as path, open(path, "rb") as file:
            return [os.pread(file.fileno(), length, start) for start, length in ranges]

    def size(self, name: str) -> int:
        with self._reading(name) as path:
            return path.stat().st_size

    def list(self, prefix: str) -> list[str]:
        folder = check_prefix(prefix)
        if not self._root.is_dir():
            raise _root_missing(self._root)
        top = self._root / folder
        try:
            return sorted(name for name in self._walk(top) if name.startswith(prefix))
        except OSError as error:
            raise _failed("list", top, error) from error

    def delete(self, name: str) -> None:
        path = self._path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _failed("delete", path, error) from error

    def sweep(self, prefix: str) -> None:
        machine = this_machine()
        for folder, _, names in os.walk(self._root / check_prefix(prefix)):
            for name in names:
                if is_left_behind(name, machine, is_alive):
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(folder, name))

    def local_path(self, name: str) -> Path | None:
        return self._path(name)

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        check_name(name)
        return False

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)

    def _walk(self, top: Path) -> Iterator[str]:
        for folder, folders, files in os.walk(top, onerror=_raise_unless_missing):
            folders[:] = [each for each in folders if not each.startswith(".")]
            relative = Path(folder).relative_to(self._root)
            yield from ((relative / file).as_posix() for file in files if not file.startswith("."))

    def _make_parent(self, path: Path) -> None:
        if path.parent.is_dir():
            return
        if not self._root.is_dir():
            raise _root_missing(self._root)
        _make_directories(self._root, path.parent)

    @contextlib.contextmanager
    def _temporary(self, path: Path) -> Iterator[Path]:
        """A hidden path on the same file system as `path`; removed at the end."""
        self._make_parent(path)
        temporary = _hidden_beside(path)
        try:
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _copy(self, source: Path, target: Path) -> None:
        with self._temporary(target) as temporary:
            shutil.copyfile(source, temporary)
            _sync(temporary)
            self._bind(temporary, target)

    def _bind(self, source: Path, target: Path) -> None:
        """Links a finished file to its name: the step that makes a blob visible."""
        try:
            os.link(source, target)
        except FileExistsError:
            raise AlreadyExists(f"{target} already exists", hint="read it back and compare") from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise _no_links(self._root, error) from error
            raise
        try:
            _sync(target.parent)
        except OSError as error:
            raise MaybeApplied(
                f"{target} was written but its directory could not be flushed: {error.strerror}",
                hint="read it back and compare before trying again",
            ) from error

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Raises a Headrace error for an `OSError` of a write that was not applied."""
        try:
            yield
        except OSError as error:
            if not self._root.is_dir():
                raise _root_missing(self._root) from error
            raise _failed("write", path, error) from error

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        path = self._path(name)
        try:
            yield path
        except (FileNotFoundError, NotADirectoryError) as error:
            if not self._root.is_dir():
                raise _root_missing(self._root) from error
            raise BlobMissing(f"{path} does not exist", hint=_RESTORE) from error
        except OSError as error:
            raise _failed("read", path, error) from error


_RESTORE = "bring the file back from a backup, or start again with a new checkpoint location"


def _hidden_beside(path: Path) -> Path:
    return path.parent / hidden_name()


def _make_directories(existing: Path, path: Path) -> None:
    """Makes the directories between `existing` and `path` and syncs each parent."""
    current = existing
    for part in path.relative_to(existing).parts:
        current = current / part
        if current.is_dir():
            continue
        with contextlib.suppress(FileExistsError):
            current.mkdir()
        _sync(current.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _root_missing(root: Path) -> StateMissing:
    return StateMissing(
        f"the state location {root} does not exist",
        hint="set spark.headrace.state.location to where the state is, mount or restore that directory, "
        "or start again with a new checkpoint location",
    )


def _no_links(root: Path, error: OSError) -> TryAgain:
    return TryAgain(
        f"the file system of {root} makes no hard links ({error.strerror}), which atomic writes need",
        hint="set spark.headrace.state.location to a file system that has them",
    )


def _failed(action: str, path: Path, error: OSError) -> HeadraceError:
    hint = _HINTS.get(error.errno or 0, "look at that file system; the batch is tried again")
    return TryAgain(f"cannot {action} {path}: {error.strerror or error}", hint=hint)
