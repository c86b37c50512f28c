"""`animegamer-rt play`: one player at a terminal."""
