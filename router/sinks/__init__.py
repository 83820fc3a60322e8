"""Where the rows of a query may go besides the result log: a module for each kind of place."""
