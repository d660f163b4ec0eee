"""The store of distinct values beside the groups that count them."""
