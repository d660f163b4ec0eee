"""Operators over changelogs, and operators whose result is one."""
