"""Append and unaligned read: rows of sessions in a log, read ahead by estimated trigger time."""
