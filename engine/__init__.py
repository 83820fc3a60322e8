"""The one room that knows Spark."""
