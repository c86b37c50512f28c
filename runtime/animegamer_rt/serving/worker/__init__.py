"""The worker: the process that owns the engines, and runs what the server's front process sends it, one job at a time.

It keeps nothing of a session between two jobs, so it may die at any moment and another takes its place.
"""
