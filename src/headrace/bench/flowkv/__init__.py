"""FlowKV's queries: Headrace, its RocksDB store and Spark side by side."""
