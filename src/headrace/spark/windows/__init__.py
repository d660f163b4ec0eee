"""Windows of each key's own beside sessions: by a function of the user, by count, up to a marker."""
