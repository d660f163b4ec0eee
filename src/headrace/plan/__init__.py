"""What an operator is: spec, options, types, choice of store, epochs, frontier. No Numba, no Spark."""
