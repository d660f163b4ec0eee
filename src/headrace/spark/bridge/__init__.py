"""The operator in Spark's JVM: finding and loading its jar, and putting it into a plan."""
