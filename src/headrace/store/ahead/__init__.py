"""State that is read before its rows arrive: hints, fetches and staged rows of one partition."""
