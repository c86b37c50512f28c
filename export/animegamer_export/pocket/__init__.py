"""The pocket bundle: a tiny cartoon world and how its small models are trained on it."""
