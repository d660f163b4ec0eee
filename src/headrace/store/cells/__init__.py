"""The store of user processors: cells of bytes by key, and reminders by time."""
