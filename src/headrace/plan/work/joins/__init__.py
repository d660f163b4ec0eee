"""Joins of streams: what matches, which columns they have, which stores fit."""
