"""Kernels over tables: index, accumulate, combine, age, align."""
