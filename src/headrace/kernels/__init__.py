"""Numba kernels: arrays in, arrays out, no state, no GIL. `reference.py` is the plain meaning of each."""
