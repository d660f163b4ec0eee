"""The application's secret: a call without it is refused.

Every call to a host or to the coordinator carries `authorization: Bearer <secret>`. The middleware below
runs before any handler, for every method of the service.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any

from pyarrow import flight


def new_secret() -> str:
    """A new random secret."""
    return secrets.token_hex(32)


def bearer(secret: str) -> tuple[bytes, bytes]:
    """The header with the secret."""
    return b"authorization", f"Bearer {secret}".encode()


def shows(headers: dict[str, list[str]], secret: str) -> bool:
    """Whether call headers have the secret; compared in constant time."""
    expected = f"Bearer {secret}".encode()
    values = headers.get("authorization", [])
    return any(hmac.compare_digest(str(value).encode(), expected) for value in values)


class SecretRequired(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses every call without the secret."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        if not secret:
            raise ValueError("an empty secret would let anyone in")
        self._secret = secret

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        if not shows(headers, self._secret):
            raise flight.FlightUnauthenticatedError("unauthenticated")
