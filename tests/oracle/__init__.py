"""Differential tests: the service against DuckDB, through REST alone."""
