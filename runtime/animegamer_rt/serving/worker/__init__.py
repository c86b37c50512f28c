"""The worker: the process that owns the engines and runs the server's jobs, one after the other.

It keeps nothing of a session that the server cannot give it again, so another worker can take its place at any moment.
"""
