"""Bytes on disk, and nothing else; documented in `docs/format.md`."""
