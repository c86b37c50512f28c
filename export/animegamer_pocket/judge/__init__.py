"""The judge, a small classifier of clips: its network, training and score."""
