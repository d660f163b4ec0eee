"""Functions over groups with one state each: `applyInPandasWithState`."""
