"""What operators do: one class per kind of work, and the registry of their names in JSON."""
