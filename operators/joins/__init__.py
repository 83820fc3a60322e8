"""Joins of streams and with static tables: counted by key, their rows formed late."""
