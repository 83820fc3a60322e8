"""Streams of files: a folder that grows, each file read once, in the order in which files were discovered."""
