"""What Headrace keeps in the directory of Spark's checkpoint."""
