"""What must stay: pins, by which one query names files of another, and lists of condemned files."""
