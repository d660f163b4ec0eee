"""The values of settings: each parser returns what a text stands for, or raises what a user must write."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.plan.choice import NAMES
from headrace.plan.reading import AUTO as AUTO_READING
from headrace.plan.reading import Reading

_CONTAINERS = {"s3": "bucket", "az": "container"}  # by scheme
_AZURE = "write az://container/prefix, and set AZURE_STORAGE_ACCOUNT_NAME in the environment"
_GOOGLE = (
    "state on Google's storage is refused: two writers of one name must not both succeed, and that could "
    "not be tested there; use a directory that all machines share, s3:// or az://"
)
_REFUSED = {"abfs": _AZURE, "abfss": _AZURE, "wasb": _AZURE, "wasbs": _AZURE, "gs": _GOOGLE, "gcs": _GOOGLE}


def parse_path(text: str) -> str:
    """An absolute local path, given as such or as a `file:` URI."""
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        text = unquote(parts.path)
    elif parts.scheme:
        raise ValueError(f"only local or mounted paths are supported, not {parts.scheme}:")
    if not Path(text).is_absolute():
        raise ValueError("the path must be absolute")
    return text


def parse_location(text: str) -> str:
    """A local path, `s3://bucket/prefix` or `az://container/prefix`; Hadoop's `s3a:` is `s3:`."""
    parts = urlsplit(text)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    if scheme in _REFUSED:
        raise ValueError(_REFUSED[scheme])
    if scheme not in _CONTAINERS:
        if scheme not in ("", "file"):
            raise ValueError(f"write a path, s3://bucket/prefix or az://container/prefix, not {scheme}:")
        return parse_path(text)
    folders = [part for part in parts.path.split("/") if part]
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            f"write {scheme}://{_CONTAINERS[scheme]}/prefix; credentials belong into the environment"
        )
    if any(part.startswith(".") for part in folders):
        raise ValueError("no part of the prefix may begin with a dot")
    return "/".join([f"{scheme}://{parts.netloc}", *folders])


def parse_boolean(text: str) -> bool:
    words = {"true": True, "false": False}
    if text.lower() not in words:
        raise ValueError("write true or false")
    return words[text.lower()]


def within(low: int, high: int | None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d+", text):
            raise ValueError("write a whole number")
        number = int(text)
        if number < low or (high is not None and number > high):
            raise ValueError(f"write at least {low}" if high is None else f"write {low} to {high}")
        return number

    return parse


_UNITS = {
    "": 0,
    "b": 0,
    "k": 1,
    "kb": 1,
    "m": 2,
    "mb": 2,
    "g": 3,
    "gb": 3,
    "t": 4,
    "tb": 4,
    "p": 5,
    "pb": 5,
}


def parse_bytes(text: str) -> int:
    """A byte size as Spark writes it: `512m`, `1g`, `64kb`; a bare number is bytes."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError("write a size such as 512m or 1g")
    size = int(match[1]) << (10 * _UNITS[match[2]])
    if size == 0:
        raise ValueError("write a size above zero")
    return size


def parse_bound(text: str) -> int:
    """A byte size, or 0 for nothing at all."""
    return 0 if text.strip() == "0" else parse_bytes(text)


def parse_reading(text: str) -> Reading:
    if text == "auto":
        return AUTO_READING
    if text == "alone":
        return Reading("alone", 0.0)
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) > 1:
        raise ValueError("write auto, alone, or a number from 0 to 1")
    return Reading("share", float(text))


def parse_part(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) > 1:
        raise ValueError("write a number from 0 to 1")
    return float(text)


def parse_amplification(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) <= 1:
        raise ValueError("write a number above 1")
    return float(text)


def parse_instances(text: str) -> int:
    if not re.fullmatch(r"[1-4]", text):
        raise ValueError("write a number from 1 to 4")
    return int(text)


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"write {', '.join(words[:-1])} or {words[-1]}")
        return text

    return parse


def parse_store(text: str) -> str:
    if text not in NAMES:
        raise ValueError(f"write one of {', '.join(NAMES)}")
    return text


def parse_addresses(text: str) -> str:
    """Addresses as host:port, with commas between."""
    addresses = [part.strip() for part in text.split(",")]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if (
            not re.fullmatch(r"[\w.\-]+|\[[0-9a-fA-F:.]+\]", host)
            or not port.isdigit()
            or int(port) > 65535
        ):
            raise ValueError(f"write host:port, with commas between, not {address!r}")
    return ",".join(addresses)
