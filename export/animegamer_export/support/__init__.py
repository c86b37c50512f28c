"""Disk space, progress and memory, for every command of this package."""
