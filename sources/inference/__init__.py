"""Inference: what the columns of a stream must be, inferred from a sample of its rows."""
