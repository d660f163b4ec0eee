"""Kernels over sessions: merge, match, their rows, scans."""
