"""What operators compute over state rows, and the registry from an operator's work to its computation."""
