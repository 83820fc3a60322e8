"""Windowed aggregations: slices, added up once for all queries."""
