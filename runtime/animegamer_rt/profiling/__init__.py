"""The cost of a run: host and GPU facts, energy, and traces."""
