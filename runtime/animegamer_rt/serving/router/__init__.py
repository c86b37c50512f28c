"""`animegamer-rt route`: one address for several servers. It keeps nothing: it may be killed, and no game is lost.

A process of its own. It reads the header of each message, sends those of a session to the server that has it, and
hands what comes back on, unread but for the header.
"""
