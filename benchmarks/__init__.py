"""Measurement scripts, and scripts that write the docs' tables and plots from records."""
