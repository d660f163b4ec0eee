"""Seeded simulation of commits and recovery."""
