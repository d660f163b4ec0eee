"""What an application does, as records: sampled in the driver, kept as history, shown by views."""
