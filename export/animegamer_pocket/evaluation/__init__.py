"""Clip measures: motion and reconstruction."""
