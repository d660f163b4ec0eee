"""Durable versions of one partition: publish, restore, collect."""
