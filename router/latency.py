"""The bounds by which latencies are counted: few, because each of them is a series for each query."""

from __future__ import annotations

LATENCY_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds, inclusive; what takes longer is counted after the last."""
