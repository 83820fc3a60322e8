"""How Spark is configured, started and scaled."""
