"""Array types, bytes in a heap, wide integers, checksums, filters, packing and ordering."""
