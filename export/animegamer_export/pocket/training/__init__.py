"""Training of pocket's networks."""
