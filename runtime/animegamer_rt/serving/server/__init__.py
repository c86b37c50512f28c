"""The front process of `animegamer-rt serve`: sockets, admission, sessions' door, and the supervisor of the worker.

One process, one thread, one poll loop. Nothing in this package imports an engine, not even by way of another room.
"""
