"""The coordinator in Spark's driver, event times, and files of the checkpoint."""
