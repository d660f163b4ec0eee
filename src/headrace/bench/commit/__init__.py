"""Commit modes: batch times while storage is slow."""
