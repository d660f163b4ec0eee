"""Metrics: counters over records, served to Prometheus."""
