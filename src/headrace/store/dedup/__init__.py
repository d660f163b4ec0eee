"""The store of dedup: the time of the row that counts, by key."""
