"""Hints on their way to the partitions of a host, and to other hosts."""
