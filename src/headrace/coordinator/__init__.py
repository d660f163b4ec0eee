"""The coordinator: base versions, placement of partitions, event times, progress."""
