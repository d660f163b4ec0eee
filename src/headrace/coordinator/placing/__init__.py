"""Which machine has a partition: owners, pins to a disk, hosts that are started again."""
