"""The driver's side: base versions, placement of partitions, event time, progress."""
