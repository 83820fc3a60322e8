"""Inference: what the columns of a stream must be, told from a sample of its rows."""
