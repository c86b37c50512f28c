"""The pocket bundle: a small cartoon world, and the training of small models on it."""
