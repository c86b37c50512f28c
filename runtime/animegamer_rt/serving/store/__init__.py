"""Stores every player's game in one SQLite file: sessions, their turns, and the shots that their next turns need.

One thread of one process uses the file at a time.
"""
