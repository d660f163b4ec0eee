"""Spark data sources over the generators."""
