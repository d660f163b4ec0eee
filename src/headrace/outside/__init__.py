"""Key-value stores outside of Spark: a Redis client, batched look-ups, a cache, policies."""
