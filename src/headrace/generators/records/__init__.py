"""The common part of generated records: options, traffic over time, lines of text."""
