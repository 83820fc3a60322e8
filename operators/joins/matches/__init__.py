"""Windows of joins: which tuples go together, and what comes of them: counts, groups, pairs, rows."""
