"""`animegamer-rt bench serve`: what the server adds to the engines' time and memory, measured from a client's side.

Runs in the command's own process; the server and its worker are processes of theirs, as always.
"""
