"""animegamer-rt: plays AnimeGamer turns. An instruction in; the next game state and a 17-frame clip out.

Importing the package does no work.
"""

__version__ = "0.1.0"
