"""Windows over rows in their order: rows wait for the watermark, then for the rest of their window."""
