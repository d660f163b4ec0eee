"""State as a Spark table: `spark.read.format("headrace")` and `df.write.format("headrace")`."""
