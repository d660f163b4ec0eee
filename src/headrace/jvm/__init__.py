"""The operator in Spark's plan: Scala sources, and how they become a jar."""
