"""Writes and runs parts of any size with little memory: weights are made one at a time and freed after use."""
