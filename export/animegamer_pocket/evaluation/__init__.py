"""Measures of clips: motion, reconstruction."""
