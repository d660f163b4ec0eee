"""Where a Redis server is: `redis://[user[:password]@]host[:port][/database]`, `rediss://…`, `unix:///path`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headrace.errors import QueryError

_HINT = "write it as redis://host:6379/0, rediss://user:password@host:6380, or unix:///run/redis.sock"


@dataclass(frozen=True)
class Address:
    """A parsed URL; `repr` leaves the password out."""

    host: str
    port: int
    path: str  # of a Unix socket; empty for TCP
    database: int
    user: str
    password: str
    is_tls: bool

    def __repr__(self) -> str:
        place = f"unix://{self.path}" if self.path else f"{'rediss' if self.is_tls else 'redis'}://"
        return place if self.path else f"{place}{self.host}:{self.port}/{self.database}"


def parsed(url: str) -> Address:
    """The address in a URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
    except (ValueError, AttributeError):
        raise QueryError(f"{url!r} is not the URL of a Redis server", hint=_HINT) from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise QueryError(f"{parts.scheme or 'no'} is not a scheme of a Redis URL", hint=_HINT)
    is_unix = parts.scheme == "unix"
    database = "" if is_unix else parts.path.strip("/")
    if (is_unix and not parts.path) or (database and not database.isdigit()):
        raise QueryError(f"{parts.path!r} is not a database of a Redis URL", hint=_HINT)
    return Address(
        host=parts.hostname or "localhost",
        port=port,
        path=parts.path if is_unix else "",
        database=int(database or 0),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        is_tls=parts.scheme == "rediss",
    )
