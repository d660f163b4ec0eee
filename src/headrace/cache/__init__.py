"""What leaves memory first: the order of rows in memory."""
