"""The host's process: start, settings, locks, heartbeat, server."""
