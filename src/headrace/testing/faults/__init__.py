"""Faulty, slow and simulated storage; a host that ends at a chosen step."""
