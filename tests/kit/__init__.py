"""Test kit: a running service, a REST client, and waiting on conditions."""
