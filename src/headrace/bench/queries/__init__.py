"""The queries of the benchmarks."""
