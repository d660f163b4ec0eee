"""The host's state: service, partitions, transactions, upkeep."""
