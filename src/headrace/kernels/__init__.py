"""Numba kernels: arrays in, arrays out, no state, no GIL. `reference.py` has the plain meaning of each."""
