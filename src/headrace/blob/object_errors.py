"""Translates the failures of an object store into errors with a hint.

A write was not applied if the store refused or throttled it, or was never reached. A lost reply, or one
that only reports an internal error, leaves the outcome open.
"""

from __future__ import annotations

import re

from obstore.exceptions import AlreadyExistsError, PreconditionError

from headrace.blob.clouds import Cloud
from headrace.errors import (
    AlreadyExists,
    BlobMissing,
    HeadraceError,
    MaybeApplied,
    SettingError,
    StateMissing,
    TryAgain,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_SECONDS = re.compile(r" in [\d.]+\S*s\b")
_NO_CREDENTIALS = (
    "/latest/api/token",
    "/latest/meta-data/iam",
    "security-credentials",
    "/metadata/identity/oauth2/token",
)
_THROTTLED = frozenset(
    {"SlowDown", "RequestLimitExceeded", "Throttling", "ThrottlingException", "ServerBusy"}
)
_EXISTS = "BlobAlreadyExists"  # Azure's answer to a put of a used name, with the status of a conflict
_NO_CONTAINER = ("NoSuchBucket", "ContainerNotFound", "The specified container does not exist")
_STALE = frozenset({"ExpiredToken", "InvalidToken", "RequestTimeTooSkewed"})
_LATER = "nothing to do if it passes: it is tried again; look at the store and the network if it does not"


def translated(error: Exception, action: str, where: str, cloud: Cloud, *, writing: bool) -> HeadraceError:
    """The Headrace error for an `obstore` failure of `action` on the object `where`."""
    text = str(error)
    status, code = _status(text), _code(text)
    if is_container_missing(error):
        return _no_container(where, cloud)
    if any(mark in text for mark in _NO_CREDENTIALS):
        return _no_credentials(where, cloud, text, status)
    if isinstance(error, FileNotFoundError):
        return BlobMissing(f"{where} does not exist", hint=_RESTORE)
    if isinstance(error, AlreadyExistsError | PreconditionError) and (status != 409 or code == _EXISTS):
        return AlreadyExists(f"{where} already exists", hint="read it back and compare")
    if status in (401, 403) or code in _STALE:
        return _refused(action, where, cloud, code or str(status))
    if status == 409 or status == 429 or code in _THROTTLED or code == "RequestTimeout":
        return TryAgain(f"cannot {action} {where} now: the store answers {code or status}", hint=_LATER)
    if "kind: Connect" in text:
        return TryAgain(f"cannot {action} {where}: no answer from its endpoint", hint=_LATER)
    if status is not None and status < 500:
        return _wrong(action, where, cloud, text)
    answer = f"{code or status}" if status is not None else "no answer"
    if writing:
        return MaybeApplied(
            f"{where} may have been written: {answer} ({summary(text)})",
            hint="read it back and compare before trying again",
        )
    return TryAgain(f"cannot {action} {where} now: {answer} ({summary(text)})", hint=_LATER)


def is_container_missing(error: Exception) -> bool:
    """Whether the store has no such bucket or container."""
    return any(mark in str(error) for mark in _NO_CONTAINER)


def is_past_end(error: Exception) -> bool:
    """Whether a ranged read was refused because the object ends before the range.

    Some stores answer such a read with the whole object; then the client refuses it.
    """
    text = str(error)
    return _status(text) == 416 or _code(text) == "InvalidRange" or "Wanted range starting at" in text


_RESTORE = "bring the object back from a backup, or start again with a new checkpoint location"


def summary(text: str) -> str:
    """The first line of an `obstore` message, without its timings."""
    return _SECONDS.sub("", text.partition("\n")[0])[:300]


def _status(text: str) -> int | None:
    match = _STATUS.search(text)
    return None if match is None else int(match[1])


def _code(text: str) -> str:
    match = _CODE.search(text)
    return "" if match is None else match[1]


def _no_container(where: str, cloud: Cloud) -> StateMissing:
    name = where.removeprefix(f"{cloud.scheme}://").partition("/")[0]
    return StateMissing(
        f"the {cloud.container} {name} does not exist",
        hint=f"create it, or set spark.headrace.state.location (with {cloud.place}) to where the state is",
    )


def _no_credentials(where: str, cloud: Cloud, text: str, status: int | None) -> HeadraceError:
    if status is not None and (status >= 500 or status == 429):
        return TryAgain(f"the credentials for {where} cannot be had now: {summary(text)}", hint=_LATER)
    return SettingError(
        f"there are no credentials for {where}",
        hint=f"set {cloud.credentials} in the environment of the executors "
        "(spark.executorEnv.…), or give the machine or its container a role",
    )


def _refused(action: str, where: str, cloud: Cloud, answer: str) -> SettingError:
    return SettingError(
        f"not allowed to {action} {where}: the store answers {answer}",
        hint="let the executors' credentials list, read, write and delete under the state location; "
        f"{cloud.together} must belong together",
    )


def _wrong(action: str, where: str, cloud: Cloud, text: str) -> SettingError:
    return SettingError(
        f"cannot {action} {where}: {summary(text)}",
        hint=f"check spark.headrace.state.location, {cloud.place}",
    )
