"""Object storage: the contract, and what fulfils it."""
