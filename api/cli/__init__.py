"""The command line `braid`: one module per group of commands, `main` puts them together."""
