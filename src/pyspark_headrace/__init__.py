"""Spark finds data sources in modules of this prefix by itself, so `format("headrace")` is known."""

from headrace.spark.tables.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
