"""Shared operators: what source tasks and partitions do with tuples, for all queries at once."""
