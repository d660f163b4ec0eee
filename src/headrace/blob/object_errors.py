"""Translates the failures of an object store into errors with a hint.

A write was not applied if the store refused or throttled it, or was never reached. A lost reply, or one
that only reports an internal error, leaves the outcome open.
"""

from __future__ import annotations

import re

from obstore.exceptions import AlreadyExistsError, PreconditionError

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
_NO_CREDENTIALS = ("/latest/api/token", "/latest/meta-data/iam", "security-credentials")
_THROTTLED = frozenset({"SlowDown", "RequestLimitExceeded", "Throttling", "ThrottlingException"})
_STALE = frozenset({"ExpiredToken", "InvalidToken", "RequestTimeTooSkewed"})
_LATER = "nothing to do if it passes: it is tried again; look at the store and the network if it does not"


def translated(error: Exception, action: str, where: str, *, writing: bool) -> HeadraceError:
    """The Headrace error for an `obstore` failure of `action` on the object `where`."""
    text = str(error)
    status, code = _status(text), _code(text)
    if code == "NoSuchBucket":
        return _no_bucket(where)
    if any(mark in text for mark in _NO_CREDENTIALS):
        return _no_credentials(where, text, status)
    if isinstance(error, FileNotFoundError):
        return BlobMissing(f"{where} does not exist", hint=_RESTORE)
    if isinstance(error, AlreadyExistsError | PreconditionError) and status != 409:
        return AlreadyExists(f"{where} already exists", hint="read it back and compare")
    if status in (401, 403) or code in _STALE:
        return _refused(action, where, code or str(status))
    if status == 409 or status == 429 or code in _THROTTLED or code == "RequestTimeout":
        return TryAgain(f"cannot {action} {where} now: the store answers {code or status}", hint=_LATER)
    if "kind: Connect" in text:
        return TryAgain(f"cannot {action} {where}: no answer from its endpoint", hint=_LATER)
    if status is not None and status < 500:
        return _wrong(action, where, text)
    answer = f"{code or status}" if status is not None else "no answer"
    if writing:
        return MaybeApplied(
            f"{where} may have been written: {answer} ({summary(text)})",
            hint="read it back and compare before trying again",
        )
    return TryAgain(f"cannot {action} {where} now: {answer} ({summary(text)})", hint=_LATER)


def is_past_end(error: Exception) -> bool:
    """Whether a ranged read was refused because the object ends before the range."""
    return _status(str(error)) == 416 or _code(str(error)) == "InvalidRange"


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


def _no_bucket(where: str) -> StateMissing:
    bucket = where.removeprefix("s3://").partition("/")[0]
    return StateMissing(
        f"the bucket {bucket} does not exist",
        hint="create it, or set spark.headrace.state.location (and AWS_ENDPOINT_URL, AWS_REGION) to where "
        "the state is",
    )


def _no_credentials(where: str, text: str, status: int | None) -> HeadraceError:
    if status is not None and (status >= 500 or status == 429):
        return TryAgain(f"the credentials for {where} cannot be had now: {summary(text)}", hint=_LATER)
    return SettingError(
        f"there are no credentials for {where}",
        hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the executors "
        "(spark.executorEnv.…), or give the machine or its container a role",
    )


def _refused(action: str, where: str, answer: str) -> SettingError:
    return SettingError(
        f"not allowed to {action} {where}: the store answers {answer}",
        hint="let the executors' credentials list, read, write and delete under the state location; "
        "AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN and AWS_REGION must belong together",
    )


def _wrong(action: str, where: str, text: str) -> SettingError:
    return SettingError(
        f"cannot {action} {where}: {summary(text)}",
        hint="check spark.headrace.state.location, AWS_ENDPOINT_URL and AWS_REGION",
    )
