"""The common part of kernels and stores: a run of rows, the layout of a row, array types."""
