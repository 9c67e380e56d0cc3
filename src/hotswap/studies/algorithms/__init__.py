"""The algorithms that a study can train, one to a file."""
