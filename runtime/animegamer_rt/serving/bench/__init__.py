"""`animegamer-rt bench serve`: the time and memory that the server adds to the engines', measured by a client.

The client runs in the process of the command; the server and its worker run in processes of their own, as always.
"""
