"""User processors: Headrace and PySpark's own engines side by side."""
