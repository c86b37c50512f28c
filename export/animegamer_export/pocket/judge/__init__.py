"""The judge: a small classifier that reads off a clip what it shows, its training and its score."""
