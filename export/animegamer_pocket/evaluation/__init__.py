"""Measures of clips (motion, reconstruction) and contact sheets."""
