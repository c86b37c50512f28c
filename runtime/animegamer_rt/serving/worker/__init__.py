"""The worker: the process that owns the engines and runs the server's jobs one after the other.

It holds no session state that the server could not send again, so another worker can replace it at any time.
"""
