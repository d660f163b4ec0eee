"""Protects the settings: defaults, every spelling that Spark users know, and that nothing misspelt runs."""

from __future__ import annotations

import pytest

from headrace.errors import SettingError
from headrace.plan.options import SETTINGS, Options, read_options
from headrace.plan.reading import Reading
from headrace.plan.values.parsers import parse_bytes


def test_defaults_follow_the_parallelism() -> None:
    options = read_options({"spark.app.name": "x"}, parallelism=6)
    assert (options.location, options.retain, options.new) == (None, 20, False)
    assert (options.memory_bytes, options.partitions, options.host_per) == (1 << 30, 6, "machine")
    assert "headrace-" in options.local


def test_defaults_never_exceed_the_groups() -> None:
    assert read_options({}, parallelism=5000).partitions == 1024


def test_every_setting_is_read() -> None:
    conf = {
        "spark.headrace.state.location": "file:///data/my%20state",
        "spark.headrace.state.local": "/fast",
        "spark.headrace.state.retain": "3",
        "spark.headrace.state.new": "TRUE",
        "spark.headrace.memory": "256m",
        "spark.headrace.partitions": "8",
        "spark.headrace.host.per": "executor",
        "spark.headrace.store": "memory",
        "spark.headrace.commit": "upload",
        "spark.headrace.read.ratio": "0.1",
        "spark.headrace.combine": "on",
        "spark.headrace.space.amplification": "2.5",
        "spark.headrace.instances": "3",
        "spark.headrace.bridge": "jvm",
        "spark.headrace.timing": "spark",
        "spark.headrace.history": "2m",
        "spark.headrace.metrics.port": "9464",
        "spark.headrace.log.fsync": "true",
        "spark.headrace.cache": "clock",
        "spark.headrace.cache.disk": "20 G",
        "spark.headrace.cache.fill": "whole",
        "spark.headrace.stop.wait": "90",
        "spark.headrace.prefetch": "on",
        "spark.headrace.prefetch.waste": "0.25",
        "spark.headrace.compaction": "remote",
        "spark.headrace.compaction.workers": "compactor:7171",
        "spark.headrace.compaction.secret": "/etc/secret",
    }
    assert len(conf) == len(SETTINGS)
    assert read_options(conf, 1) == Options(
        "/data/my state",
        "/fast",
        3,
        True,
        256 << 20,
        8,
        "executor",
        "memory",
        "upload",
        Reading("share", 0.1),
        "on",
        2.5,
        3,
        "jvm",
        "spark",
        2 << 20,
        9464,
        True,
        "clock",
        "20g",
        "whole",
        90,
        "on",
        0.25,
        "remote",
        "compactor:7171",
        "/etc/secret",
        rescales=True,
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("10b", 10),
        ("2k", 2048),
        ("2KB", 2048),
        ("3m", 3 << 20),
        ("1 g", 1 << 30),
        ("1t", 1 << 40),
    ],
)
def test_byte_sizes_as_spark_writes_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memry", "1g"),
        ("memory", "much"),
        ("memory", "0"),
        ("memory", "-1g"),
        ("state.retain", "0"),
        ("state.retain", "1.5"),
        ("state.new", "yes"),
        ("state.location", "relative/path"),
        ("state.location", "gs://bucket/x"),
        ("state.location", "abfss://container@account.dfs.core.windows.net/x"),
        ("state.location", "az://container@account/x"),
        ("state.location", "s3:///prefix"),
        ("state.location", "s3://key:secret@bucket/x"),
        ("state.location", "s3://bucket/.hidden"),
        ("state.local", "s3://bucket/x"),
        ("partitions", "0"),
        ("partitions", "1025"),
        ("host.per", "rack"),
    ],
)
def test_unknown_and_malformed_settings_are_refused_with_the_valid_ones(name: str, value: str) -> None:
    with pytest.raises(SettingError) as error:
        read_options({f"spark.headrace.{name}": value}, 1)
    assert f"spark.headrace.{name}" in error.value.message
    assert all(f"spark.headrace.{setting.name} " in error.value.hint for setting in SETTINGS)


@pytest.mark.parametrize("text", ["s3://bucket/a/b", "s3a://bucket/a/b/", "s3://bucket//a/b"])
def test_an_object_store_is_a_location(text: str) -> None:
    assert read_options({"spark.headrace.state.location": text}, 1).location == "s3://bucket/a/b"


def test_a_container_of_azure_is_a_location() -> None:
    location = read_options({"spark.headrace.state.location": "az://container//a/b/"}, 1).location
    assert location == "az://container/a/b"


def test_a_refused_cloud_is_named_with_the_reason() -> None:
    with pytest.raises(SettingError, match="two writers of one name"):
        read_options({"spark.headrace.state.location": "gs://bucket/x"}, 1)
    with pytest.raises(SettingError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        read_options({"spark.headrace.state.location": "abfss://c@a.dfs.core.windows.net/x"}, 1)
