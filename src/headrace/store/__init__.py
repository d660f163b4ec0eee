"""Stores: how the state of one partition lies in memory and on disk."""
