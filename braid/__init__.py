"""Thousands of ad-hoc SQL queries over live streams at nearly the cost of one.

The packages lie at the top of the repository; here are links to them, so that all are imported, and installed, as one.
"""

__version__ = "0.1.0"
