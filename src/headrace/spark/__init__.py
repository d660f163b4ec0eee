"""The only folder that imports pyspark: the builder, the stateful task, the driver's side, sources."""
