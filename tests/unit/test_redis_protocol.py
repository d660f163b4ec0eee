"""Protects the Redis client's own parts: commands and replies as bytes, addresses, cache, breaker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.outside.address import parsed
from headrace.outside.cache import Cache
from headrace.outside.client import greeting
from headrace.outside.policy import Breaker, checked, pause_s
from headrace.outside.redis import RedisSource, commands_of
from headrace.outside.resp import ErrorReply, Parser, ProtocolError, encoded
from headrace.plan.times import TIMES
from headrace.testing.clock import ManualClock

replies = st.recursive(
    st.none() | st.integers(-(10**18), 10**18) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


def written(reply: Any) -> bytes:
    """A reply as a server writes it (the protocol's grammar)."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return f":{reply}\r\n".encode()
    if isinstance(reply, bytes):
        return f"${len(reply)}\r\n".encode() + reply + b"\r\n"
    return f"*{len(reply)}\r\n".encode() + b"".join(map(written, reply))


@given(st.lists(replies, max_size=6), st.data())
def test_replies_in_any_pieces_are_what_was_written(sent: list[Any], data: st.DataObject) -> None:
    stream, parser, received = b"".join(map(written, sent)), Parser(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += parser.feed(stream[:size])
        stream = stream[size:]
    assert received == sent


def test_simple_replies_and_errors() -> None:
    ok, error, null = Parser().feed(b"+OK\r\n-LOADING wait a bit\r\n*-1\r\n")
    assert (ok, null) == (b"OK", None)
    assert isinstance(error, ErrorReply)
    assert error.code == "LOADING"
    with pytest.raises(ProtocolError):
        Parser().feed(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_command_is_an_array_of_its_parts() -> None:
    assert encoded(("SET", b"k\r\n", 7)) == b"*3\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$1\r\n7\r\n"
    assert encoded(("GET", "ü")) == b"*2\r\n$3\r\nGET\r\n$2\r\n\xc3\xbc\r\n"


def test_addresses() -> None:
    plain = parsed("redis://db.example:7000/3")
    assert (plain.host, plain.port, plain.database, plain.is_tls) == ("db.example", 7000, 3, False)
    secret = parsed("rediss://me:p%40ss@db")
    assert (secret.user, secret.password, secret.port, secret.is_tls) == ("me", "p@ss", 6379, True)
    assert "p@ss" not in repr(secret)
    assert parsed("unix:///run/redis.sock").path == "/run/redis.sock"
    assert greeting(parsed("redis://:pw@h/2")) == [("AUTH", "pw"), ("SELECT", 2)]
    for wrong in ("http://h", "h:6379", "redis://h:port", "redis://h/one", "unix://"):
        with pytest.raises(hr.QueryError, match="redis://host:6379"):
            parsed(wrong)


def test_requests_name_many_strings_at_once_and_each_hash_alone() -> None:
    strings = RedisSource(parsed("redis://h"), ("v",), prefix="ad:")
    assert commands_of(strings, ["a", "b"]) == [("MGET", "ad:a", "ad:b")]
    hashes = RedisSource(parsed("redis://h"), ("x", "y"), is_hash=True)
    assert commands_of(hashes, ["a", "b"]) == [("HMGET", "a", "x", "y"), ("HMGET", "b", "x", "y")]


def test_the_cache_forgets_the_oldest_use_and_old_values() -> None:
    clock = ManualClock()
    cache = Cache[int](2, 100.0, clock)
    cache.add({"a": 1, "b": 2})
    assert cache.known(["a"]) == {"a": 1}
    cache.add({"c": 3})
    assert (cache.known(["a", "b", "c"]), len(cache)) == ({"a": 1, "c": 3}, 2)
    clock.advance_ms(100)
    assert cache.known(["a", "c"]) == {}
    endless = Cache[int](1, None, clock)
    endless.add({"a": 1})
    clock.advance_ms(10**9)
    assert endless.known(["a"]) == {"a": 1}


def test_the_breaker_skips_requests_for_a_short_time() -> None:
    clock = ManualClock()
    breaker = Breaker(clock)
    assert not breaker.is_open
    breaker.trip()
    assert breaker.is_open
    clock.advance_ms(TIMES.lookup_skip_s * 1000)
    assert not breaker.is_open


def test_pauses_grow_to_a_limit_and_policies_have_names() -> None:
    pauses = [pause_s(failures) for failures in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == TIMES.lookup_pause_s
    assert checked("null") == "null"
    with pytest.raises(hr.QueryError, match='"wait", "null" or "fail"'):
        checked("retry")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hr.redis("redis://h", "a string, b string"), "one column, not 2"),
        (lambda: hr.redis("redis://h", "a array<string>"), "nested"),
        (lambda: hr.redis("redis://h", "a string", cache=-1), "number of keys"),
    ],
)
def test_a_wrong_description_is_refused(call: Any, message: str) -> None:
    with pytest.raises(hr.QueryError, match=message):
        call()
