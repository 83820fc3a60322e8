"""Joins with static tables, before the operators."""
