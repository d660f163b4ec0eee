"""Compaction elsewhere: the host's side. It finds a compactor, and verifies what that one wrote."""
