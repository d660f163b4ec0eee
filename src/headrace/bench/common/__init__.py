"""The common part of benchmarks: Spark sessions, sides in turns, workloads, reports."""
