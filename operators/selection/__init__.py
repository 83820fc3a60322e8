"""Selections: tuples of a stream, one by one."""
