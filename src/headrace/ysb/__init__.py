"""The Yahoo streaming benchmark: ad events, campaigns from Redis, counts per window back to Redis."""
