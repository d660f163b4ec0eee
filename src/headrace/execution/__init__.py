"""The asynchronous execution controller: keys, buffers, epochs, and the order of callbacks and records."""
