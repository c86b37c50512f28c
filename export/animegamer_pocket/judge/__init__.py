"""The judge, a small classifier of clips: its network, its training and the score that it gives."""
