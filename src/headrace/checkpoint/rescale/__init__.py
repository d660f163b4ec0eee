"""Another number of partitions: old manifests are frozen, and the bases of new partitions derived."""
