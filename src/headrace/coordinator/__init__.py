"""The driver's side: which version a batch starts from, which host owns a partition, event time, progress."""
