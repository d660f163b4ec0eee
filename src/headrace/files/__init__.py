"""Logical files of a partition, and where their bytes are: local log, disk copy, shared storage."""
