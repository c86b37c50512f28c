"""The cost of a run: host and GPU facts, and traces."""
