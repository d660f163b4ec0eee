"""The `spark.headrace.*` settings: one table, one frozen dataclass, one strict reader.

Settings are read once, when an operator is built. An unknown or malformed one is refused with the list of
valid ones, so that a misspelt setting never runs with its default.
"""

from __future__ import annotations

import getpass
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from headrace.cache.policy import POLICIES, PolicyName
from headrace.errors import SettingError, did_you_mean
from headrace.plan.choice import NAMES
from headrace.plan.disk import parse_disk
from headrace.plan.lookahead import PREFETCHING, Prefetch
from headrace.plan.reading import AUTO as AUTO_READING
from headrace.plan.reading import Reading
from headrace.plan.timing import TIMINGS, Timing
from headrace.plan.work.stores import StoreName

PREFIX = "spark.headrace."
PARTITIONS_MAX = 1024

HostPer = Literal["machine", "executor"]
CommitMode = Literal["sync", "upload", "async"]
COMMIT_MODES: tuple[CommitMode, ...] = ("sync", "upload", "async")
Combine = Literal["auto", "on", "off"]
COMBINING: tuple[Combine, ...] = ("auto", "on", "off")
Fill = Literal["ranges", "whole"]
FILLS: tuple[Fill, ...] = ("ranges", "whole")
Bridge = Literal["auto", "jvm", "python"]
BRIDGES: tuple[Bridge, ...] = ("auto", "jvm", "python")


@dataclass(frozen=True)
class Options:
    """The settings that an operator was built with."""

    location: str | None  # None: `headrace-state` under the query's checkpoint
    local: str
    retain: int
    new: bool
    memory_bytes: int
    partitions: int
    host_per: HostPer
    store: StoreName = "auto"
    commit: CommitMode = "sync"
    reading: Reading = AUTO_READING
    combine: Combine = "auto"
    amplification: float = 1.5
    instances: int = 1
    bridge: Bridge = "auto"
    timing: Timing = "auto"
    history_bytes: int = 16 << 20
    metrics_port: int | None = None
    log_fsync: bool = False
    cache: PolicyName = "timestamp"
    cache_disk: str = ""
    cache_fill: Fill = "ranges"
    stop_wait_s: int = 60
    prefetch: Prefetch = "auto"
    waste: float = 0.0
    rescales: bool = False  # whether the number of partitions was set; a default one changes no state


@dataclass(frozen=True)
class Setting:
    """One setting: its name after `spark.headrace.`, what it holds, its default and its meaning."""

    name: str
    field: str
    kind: str
    default: str
    doc: str
    parse: Callable[[str], Any]


def _path(text: str) -> str:
    """An absolute local path, given as such or as a `file:` URI."""
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        text = unquote(parts.path)
    elif parts.scheme:
        raise ValueError(f"only local or mounted paths are supported, not {parts.scheme}:")
    if not Path(text).is_absolute():
        raise ValueError("the path must be absolute")
    return text


def _location(text: str) -> str:
    """A local path, or `s3://bucket/prefix`; Hadoop's spelling `s3a:` means the same."""
    parts = urlsplit(text)
    if parts.scheme not in ("s3", "s3a"):
        if parts.scheme not in ("", "file"):
            raise ValueError(f"say a path or s3://bucket/prefix, not {parts.scheme}:")
        return _path(text)
    folders = [part for part in parts.path.split("/") if part]
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("say s3://bucket/prefix; credentials belong into the environment")
    if any(part.startswith(".") for part in folders):
        raise ValueError("no part of the prefix may begin with a dot")
    return "/".join([f"s3://{parts.netloc}", *folders])


def _boolean(text: str) -> bool:
    words = {"true": True, "false": False}
    if text.lower() not in words:
        raise ValueError("say true or false")
    return words[text.lower()]


def _within(low: int, high: int | None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d+", text):
            raise ValueError("say a whole number")
        number = int(text)
        if number < low or (high is not None and number > high):
            raise ValueError(f"say at least {low}" if high is None else f"say {low} to {high}")
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
        raise ValueError("say a size such as 512m or 1g")
    size = int(match[1]) << (10 * _UNITS[match[2]])
    if size == 0:
        raise ValueError("say a size above zero")
    return size


def _bound(text: str) -> int:
    """A byte size, or 0 for nothing at all."""
    return 0 if text.strip() == "0" else parse_bytes(text)


def _host_per(text: str) -> str:
    if text not in ("machine", "executor"):
        raise ValueError("say machine or executor")
    return text


def _reading(text: str) -> Reading:
    if text == "auto":
        return AUTO_READING
    if text == "alone":
        return Reading("alone", 0.0)
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) > 1:
        raise ValueError("write auto, alone, or a number from 0 to 1")
    return Reading("share", float(text))


def _part(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) > 1:
        raise ValueError("say a number from 0 to 1")
    return float(text)


def _amplification(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) <= 1:
        raise ValueError("say a number above 1")
    return float(text)


def _instances(text: str) -> int:
    if not re.fullmatch(r"[1-4]", text):
        raise ValueError("say a number from 1 to 4")
    return int(text)


def _combine(text: str) -> str:
    if text not in COMBINING:
        raise ValueError("say auto, on or off")
    return text


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"say {', '.join(words[:-1])} or {words[-1]}")
        return text

    return parse


def _commit(text: str) -> str:
    if text not in COMMIT_MODES:
        raise ValueError("say sync, upload or async")
    return text


def _store(text: str) -> str:
    if text not in NAMES:
        raise ValueError(f"say one of {', '.join(NAMES)}")
    return text


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "state.location",
        "location",
        "path or s3://…",
        "<checkpoint>/headrace-state",
        "where state is kept for good: a directory that all machines share, or s3://bucket/prefix",
        _location,
    ),
    Setting(
        "state.local",
        "local",
        "path",
        "<temp>/headrace-<user>",
        "local disk of the state hosts; {machine} in it stands for the machine, or with host.per=executor "
        "for the executor",
        _path,
    ),
    Setting("state.retain", "retain", "number", "20", "versions kept for recovery", _within(1, None)),
    Setting("state.new", "new", "boolean", "false", "true: begin with empty state on purpose", _boolean),
    Setting("memory", "memory_bytes", "bytes", "1g", "memory limit of one state host", parse_bytes),
    Setting(
        "partitions",
        "partitions",
        "number",
        "default parallelism",
        "state partitions of an operator; state keeps its number unless this is set",
        _within(1, PARTITIONS_MAX),
    ),
    Setting(
        "host.per", "host_per", "machine|executor", "machine", "how many state hosts there are", _host_per
    ),
    Setting(
        "store",
        "store",
        "|".join(NAMES),
        "auto",
        "how state is laid out; auto follows from the operator",
        _store,
    ),
    Setting(
        "commit",
        "commit",
        "sync|upload|async",
        "sync",
        "a batch waits until its state is on shared storage, sealed here, or logged here (hr.start: async)",
        _commit,
    ),
    Setting(
        "read.ratio",
        "reading",
        "auto|alone|0 to 1",
        "auto",
        "part of the live sessions whose rows are read ahead, before they end (aur); 0 for none; auto "
        "follows how many end, and reads nothing ahead from the page cache; alone reads each by itself",
        _reading,
    ),
    Setting(
        "combine",
        "combine",
        "auto|on|off",
        "auto",
        "combine rows of a key and window before the shuffle; auto does where there are no keys",
        _combine,
    ),
    Setting(
        "space.amplification",
        "amplification",
        "above 1",
        "1.5",
        "times the rows of open sessions that their log may have on disk before it is compacted (aur)",
        _amplification,
    ),
    Setting(
        "instances",
        "instances",
        "1 to 4",
        "1",
        "logs that the sessions of a partition are split over, each compacted by itself (aur)",
        _instances,
    ),
    Setting(
        "bridge",
        "bridge",
        "auto|jvm|python",
        "auto",
        "rows reach the state host from an operator in Spark's JVM, or from a Python worker; auto probes",
        _one_of(*BRIDGES),
    ),
    Setting(
        "timing",
        "timing",
        "auto|spark|eager",
        "auto",
        "windows close by Spark's watermark, or in the batch whose data passes them (jvm bridge)",
        _one_of(*TIMINGS),
    ),
    Setting(
        "history",
        "history_bytes",
        "bytes",
        "16m",
        "how much of a query's progress is kept in its checkpoint, for headrace view; 0 for none",
        _bound,
    ),
    Setting(
        "metrics.port",
        "metrics_port",
        "port",
        "none",
        "serve Prometheus metrics of driver and hosts at this port of loopback; 0 takes any free one",
        _within(0, 65535),
    ),
    Setting(
        "log.fsync",
        "log_fsync",
        "boolean",
        "false",
        "true: the log of upload and async commits survives a power loss, at one or more fsyncs a batch",
        _boolean,
    ),
    Setting(
        "cache",
        "cache",
        "|".join(POLICIES),
        "timestamp",
        "which rows of state leave a host's memory first: oldest event time, last use, or second chance",
        _one_of(*POLICIES),
    ),
    Setting(
        "cache.disk",
        "cache_disk",
        "bytes, share or 0",
        "50% for s3://…, none for directories",
        "disk of a machine for copies of state elsewhere: 20g, 10% of the free space, or 0; if it is set, "
        "directories are read through such copies too",
        parse_disk,
    ),
    Setting(
        "cache.fill",
        "cache_fill",
        "ranges|whole",
        "ranges",
        "state elsewhere is fetched in the ranges that a batch touches, or each file whole at first",
        _one_of(*FILLS),
    ),
    Setting(
        "stop.wait",
        "stop_wait_s",
        "seconds",
        "60",
        "how long hr.stop and the application's end wait until shared storage has the last state",
        _within(0, 3600),
    ),
    Setting(
        "prefetch",
        "prefetch",
        "|".join(PREFETCHING),
        "auto",
        "read state ahead of its rows; auto does where batches wait for state and hints help",
        _one_of(*PREFETCHING),
    ),
    Setting(
        "prefetch.waste",
        "waste",
        "0 to 1",
        "0",
        "part of the keys read ahead that may stay unused before auto gives hints up",
        _part,
    ),
)


def default_local() -> str:
    """The state hosts' local directory when none is set: one per user, so that users never share files."""
    return str(Path(tempfile.gettempdir()) / f"headrace-{getpass.getuser()}")


def local_on(local: str, machine: str) -> str:
    """The local directory of one machine: `{machine}` in it stands for the machine's name."""
    return local.replace("{machine}", machine)


def read_options(conf: Mapping[str, str], parallelism: int) -> Options:
    """Options from Spark's configuration; an unknown `spark.headrace.*` name raises."""
    known = {PREFIX + setting.name: setting for setting in SETTINGS}
    values: dict[str, Any] = {
        "location": None,
        "local": default_local(),
        "retain": 20,
        "new": False,
        "memory_bytes": parse_bytes("1g"),
        "partitions": min(max(parallelism, 1), PARTITIONS_MAX),
        "host_per": "machine",
        "store": "auto",
        "commit": "sync",
        "reading": AUTO_READING,
        "combine": "auto",
        "amplification": 1.5,
        "instances": 1,
        "bridge": "auto",
        "timing": "auto",
        "history_bytes": parse_bytes("16m"),
        "metrics_port": None,
        "log_fsync": False,
        "cache": "timestamp",
        "cache_disk": "",
        "cache_fill": "ranges",
        "stop_wait_s": 60,
        "prefetch": "auto",
        "waste": 0.0,
    }
    for name in sorted(conf):
        if name == PREFIX.rstrip(".") or name.startswith(PREFIX):
            setting = known.get(name)
            if setting is None:
                raise SettingError(
                    f"{name} is not a setting", hint=did_you_mean(name, known, after="; ") + _valid()
                )
            values[setting.field] = _parsed(name, setting, conf[name])
    return Options(**values, rescales=f"{PREFIX}partitions" in conf)


def _parsed(name: str, setting: Setting, text: str) -> Any:
    try:
        return setting.parse(text.strip())
    except ValueError as error:
        raise SettingError(f"{name}={text!r}: {error}", hint=_valid()) from None


def _valid() -> str:
    lines = (f"{PREFIX}{s.name} ({s.kind}, default {s.default}): {s.doc}" for s in SETTINGS)
    return "the settings are:\n    " + "\n    ".join(lines)
