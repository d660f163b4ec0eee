"""Plans of user code: processors, functions over state rows, initial state."""
