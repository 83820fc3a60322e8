"""The Kafka connector: what a statement says of it, what brokers say of a topic, and reading it."""
