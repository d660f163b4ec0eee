"""Protects the Yahoo benchmark: every count in Redis is that of a replay of the events, although Redis is
killed and started again in the middle. Skipped where no `redis-server` is installed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.generators.ysb import EVENT_TYPES, START_MS, drawn_ads, drawn_events
from headrace.testing.faults.redis_server import RedisServer, is_installed
from headrace.ysb.input import Input
from headrace.ysb.run import measured, prepared
from headrace.ysb.tables import stored

needs_redis = pytest.mark.skipif(not is_installed(), reason="redis-server is not installed")


@needs_redis
@pytest.mark.spark
def test_counts_are_exact_over_a_restart_of_redis(spark: SparkSession, tmp_path: Path) -> None:
    plan = Input(events=12_000, files=4, per_s=300.0)
    with RedisServer(tmp_path / "redis") as server:
        ads = prepared(plan, tmp_path / "input", server.url)
        outcome = measured(spark, tmp_path, ads, server.url, server, cache=0)
        assert outcome.events == 12_000
        assert outcome.wrong == []
        assert sum(outcome.stored.values()) == sum(outcome.replayed.values()) > 3_000
        assert asyncio.run(stored(server.url)) == outcome.replayed
        with pytest.raises(hr.QueryError, match="not empty"):
            prepared(plan, tmp_path / "again", server.url)


def test_events_follow_the_benchmarks_rules() -> None:
    ads = drawn_ads(3)
    assert (len(set(ads.campaigns)), len(set(ads.ads))) == (100, 1000)
    events = [json.loads(text) for text in drawn_events(ads, 1000, 5000, 1000.0, seed=3).to_pylist()]
    assert set(events[0]) == {
        *("user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address")
    }
    views = sum(event["event_type"] == "view" for event in events)
    assert abs(views - 5000 / len(EVENT_TYPES)) < 200
    even = drawn_events(ads, 1000, 5000, 1000.0, seed=3, skew=False).to_pylist()
    assert [int(json.loads(text)["event_time"]) for text in even] == list(
        range(START_MS + 1000, START_MS + 6000)
    )
    assert drawn_events(ads, 1000, 5000, 1000.0, seed=3).to_pylist()[7] == json.dumps(
        events[7], separators=(",", ":")
    )
