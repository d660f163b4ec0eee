"""The `spark.headrace.*` settings: one table, one frozen dataclass, one strict reader.

Settings are read once, when an operator is built. An unknown or malformed one is refused with the list of
valid ones, so that a misspelt setting never runs with its default.
"""

from __future__ import annotations

import getpass
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.cache.policy import POLICIES, PolicyName
from headrace.errors import SettingError, did_you_mean
from headrace.plan.choice import NAMES
from headrace.plan.lookahead import PREFETCHING, Prefetch
from headrace.plan.reading import AUTO as AUTO_READING
from headrace.plan.reading import Reading
from headrace.plan.timing import TIMINGS, Timing
from headrace.plan.values.disk import parse_disk
from headrace.plan.values.parsers import (
    one_of,
    parse_addresses,
    parse_amplification,
    parse_boolean,
    parse_bound,
    parse_bytes,
    parse_instances,
    parse_location,
    parse_part,
    parse_path,
    parse_reading,
    parse_store,
    within,
)
from headrace.plan.work.stores import StoreName

PREFIX = "spark.headrace."
PARTITIONS_MAX = 1024

HostPer = Literal["machine", "executor"]
HOSTS_PER: tuple[HostPer, ...] = ("machine", "executor")
CommitMode = Literal["sync", "upload", "async"]
COMMIT_MODES: tuple[CommitMode, ...] = ("sync", "upload", "async")
Combine = Literal["auto", "on", "off"]
COMBINING: tuple[Combine, ...] = ("auto", "on", "off")
Fill = Literal["ranges", "whole"]
FILLS: tuple[Fill, ...] = ("ranges", "whole")
Compaction = Literal["local", "remote"]
COMPACTIONS: tuple[Compaction, ...] = ("local", "remote")
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
    compaction: Compaction = "local"
    compactors: str = ""
    compaction_secret: str = ""
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


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "state.location",
        "location",
        "path, s3://… or az://…",
        "<checkpoint>/headrace-state",
        "where state is kept for good: a directory that all machines share, s3://bucket/prefix or "
        "az://container/prefix",
        parse_location,
    ),
    Setting(
        "state.local",
        "local",
        "path",
        "<temp>/headrace-<user>",
        "local disk of the state hosts; {machine} in it stands for the machine, or with host.per=executor "
        "for the executor",
        parse_path,
    ),
    Setting("state.retain", "retain", "number", "20", "versions kept for recovery", within(1, None)),
    Setting(
        "state.new", "new", "boolean", "false", "true: begin with empty state on purpose", parse_boolean
    ),
    Setting("memory", "memory_bytes", "bytes", "1g", "memory limit of one state host", parse_bytes),
    Setting(
        "partitions",
        "partitions",
        "number",
        "default parallelism",
        "state partitions of an operator; state keeps its number unless this is set",
        within(1, PARTITIONS_MAX),
    ),
    Setting(
        "host.per",
        "host_per",
        "machine|executor",
        "machine",
        "how many state hosts there are",
        one_of(*HOSTS_PER),
    ),
    Setting(
        "store",
        "store",
        "|".join(NAMES),
        "auto",
        "how state is laid out; auto follows from the operator",
        parse_store,
    ),
    Setting(
        "commit",
        "commit",
        "sync|upload|async",
        "sync",
        "a batch waits until its state is on shared storage, sealed here, or logged here (hr.start: async)",
        one_of(*COMMIT_MODES),
    ),
    Setting(
        "read.ratio",
        "reading",
        "auto|alone|0 to 1",
        "auto",
        "part of the live sessions whose rows are read ahead, before they end (aur); 0 for none; auto "
        "follows how many end, and reads nothing ahead from the page cache; alone reads each by itself",
        parse_reading,
    ),
    Setting(
        "combine",
        "combine",
        "auto|on|off",
        "auto",
        "combine rows of a key and window before the shuffle; auto does where there are no keys",
        one_of(*COMBINING),
    ),
    Setting(
        "space.amplification",
        "amplification",
        "above 1",
        "1.5",
        "times the rows of open sessions that their log may have on disk before it is compacted (aur)",
        parse_amplification,
    ),
    Setting(
        "instances",
        "instances",
        "1 to 4",
        "1",
        "logs that the sessions of a partition are split over, each compacted by itself (aur)",
        parse_instances,
    ),
    Setting(
        "bridge",
        "bridge",
        "auto|jvm|python",
        "auto",
        "rows reach the state host from an operator in Spark's JVM, or from a Python worker; auto probes",
        one_of(*BRIDGES),
    ),
    Setting(
        "timing",
        "timing",
        "auto|spark|eager",
        "auto",
        "windows close by Spark's watermark, or in the batch whose data passes them (jvm bridge)",
        one_of(*TIMINGS),
    ),
    Setting(
        "history",
        "history_bytes",
        "bytes",
        "16m",
        "how much of a query's progress is kept in its checkpoint, for headrace view; 0 for none",
        parse_bound,
    ),
    Setting(
        "metrics.port",
        "metrics_port",
        "port",
        "none",
        "serve Prometheus metrics of driver and hosts at this port of loopback; 0 takes any free one",
        within(0, 65535),
    ),
    Setting(
        "log.fsync",
        "log_fsync",
        "boolean",
        "false",
        "true: the log of upload and async commits survives a power loss, at one or more fsyncs a batch",
        parse_boolean,
    ),
    Setting(
        "cache",
        "cache",
        "|".join(POLICIES),
        "timestamp",
        "which rows of state leave a host's memory first: oldest event time, last use, or second chance",
        one_of(*POLICIES),
    ),
    Setting(
        "cache.disk",
        "cache_disk",
        "bytes, share or 0",
        "50% for s3://… and az://…, none for directories",
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
        one_of(*FILLS),
    ),
    Setting(
        "stop.wait",
        "stop_wait_s",
        "seconds",
        "60",
        "how long hr.stop and the application's end wait until shared storage has the last state",
        within(0, 3600),
    ),
    Setting(
        "prefetch",
        "prefetch",
        "|".join(PREFETCHING),
        "auto",
        "read state ahead of its rows; auto does where batches wait for state and hints help",
        one_of(*PREFETCHING),
    ),
    Setting(
        "prefetch.waste",
        "waste",
        "0 to 1",
        "0",
        "part of the keys read ahead that may stay unused before auto gives hints up",
        parse_part,
    ),
    Setting(
        "compaction",
        "compaction",
        "local|remote",
        "local",
        "hosts compact state beside the batches, or `headrace compactor` processes elsewhere do",
        one_of(*COMPACTIONS),
    ),
    Setting(
        "compaction.workers",
        "compactors",
        "host:port,…",
        "none",
        "where the compactors listen, with commas between",
        parse_addresses,
    ),
    Setting(
        "compaction.secret",
        "compaction_secret",
        "path",
        "none",
        "the file with the secret of the compactors, on every machine that has a state host",
        parse_path,
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
        "compaction": "local",
        "compactors": "",
        "compaction_secret": "",
    }
    for name in sorted(conf):
        if name == PREFIX.rstrip(".") or name.startswith(PREFIX):
            setting = known.get(name)
            if setting is None:
                raise SettingError(
                    f"{name} is not a setting", hint=did_you_mean(name, known, after="; ") + _valid()
                )
            values[setting.field] = _parsed(name, setting, conf[name])
    _check_compaction(values)
    return Options(**values, rescales=f"{PREFIX}partitions" in conf)


def _check_compaction(values: Mapping[str, Any]) -> None:
    if values["compaction"] == "remote" and not (values["compactors"] and values["compaction_secret"]):
        raise SettingError(
            f"{PREFIX}compaction=remote needs compactors and their secret",
            hint=f"start `headrace compactor`, and set {PREFIX}compaction.workers and "
            f"{PREFIX}compaction.secret",
        )


def _parsed(name: str, setting: Setting, text: str) -> Any:
    try:
        return setting.parse(text.strip())
    except ValueError as error:
        raise SettingError(f"{name}={text!r}: {error}", hint=_valid()) from None


def _valid() -> str:
    lines = (f"{PREFIX}{s.name} ({s.kind}, default {s.default}): {s.doc}" for s in SETTINGS)
    return "the settings are:\n    " + "\n    ".join(lines)
