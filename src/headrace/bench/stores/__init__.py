"""Gadget's operators on the stores alone, without Spark."""
