"""Stores of sessions: tables, rows, timers."""
