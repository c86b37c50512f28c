"""What a run cost: host and GPU facts, energy, and traces."""
