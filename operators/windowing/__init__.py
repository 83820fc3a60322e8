"""Slices, sessions, and the rows of windows when they are final, or before."""
