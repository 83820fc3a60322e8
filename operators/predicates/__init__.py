"""From predicates to query-sets and cells: what tells queries apart that see the same tuples."""
