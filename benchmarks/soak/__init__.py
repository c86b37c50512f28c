"""Plays thousands of turns against a server that is killed, stopped and starved by a seeded schedule of faults."""
