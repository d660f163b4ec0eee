"""The state host: one process per machine and Spark application that keeps the state."""
