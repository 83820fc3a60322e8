"""Shared operators: what source tasks and lanes do with tuples, for all queries at once."""
