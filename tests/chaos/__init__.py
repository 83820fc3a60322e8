"""Chaos: hostile requests and faults of every kind against a service whose other queries are held to an oracle."""
