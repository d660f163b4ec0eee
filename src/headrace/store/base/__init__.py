"""The contract of a store, and the memory budget."""
