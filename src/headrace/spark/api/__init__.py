"""The public API: builder, start, progress."""
