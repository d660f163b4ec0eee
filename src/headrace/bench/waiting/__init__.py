"""Processors that wait for other systems: asynchronous, one at a time, and with threads."""
