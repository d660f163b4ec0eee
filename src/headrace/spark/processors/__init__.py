"""User processors in Spark's Python worker: state variables, timers, values, tasks."""
