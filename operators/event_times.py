"""Event times that no tuple has (µs): one before all, one after all; windows may be added to both."""

EARLIEST = -(2**62)
LATEST = 2**62
