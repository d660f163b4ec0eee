"""What the generators of record streams share: traffic over time, fixed-width text, options."""
