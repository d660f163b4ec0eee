"""State that starts in memory, is observed, and moves to the layout that fits."""
