"""Event times that no tuple has (µs): one before all, one after all; windows may be added to both."""

EARLIEST = -(2**62)
LATEST = 2**62
ENDED = 253_402_300_799_999_999
"""The watermark of a stream that has ended: the last microsecond of the year 9999, the greatest event time."""
