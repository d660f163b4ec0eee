"""From a user's operator to Spark's plan: projection, shuffle, stateful stage, finalised results."""
