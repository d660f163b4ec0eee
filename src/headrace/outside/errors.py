"""Errors of stores outside: the store is away, or it refuses a command."""

from __future__ import annotations

from headrace.errors import QueryError, TryAgain


class StoreDown(TryAgain):
    """The store does not answer, or cannot serve yet; the same request may work later."""


class StoreRefused(QueryError):
    """The store answers with an error that a repetition does not change."""
