"""Crash rounds: a real query, killed, and its verdict."""
