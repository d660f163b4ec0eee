"""Object storage: the contract and its implementations."""
