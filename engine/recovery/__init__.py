"""What is done about batches that cannot be run, and about Spark's logs after a crash."""
