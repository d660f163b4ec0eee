"""What users write: aggregates, windows, columns, types, keys, marks."""
