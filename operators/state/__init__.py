"""What partitions keep: buckets, tuples, and their entries."""
