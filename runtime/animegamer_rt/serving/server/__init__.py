"""The server process of `animegamer-rt serve`: sockets, requests, scheduling, and the worker process.

One process, one thread, one poll loop. Nothing in this package imports an engine, directly or indirectly.
"""
