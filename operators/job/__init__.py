"""The Spark job that hosts operators, and what plans and tells of its batches."""
