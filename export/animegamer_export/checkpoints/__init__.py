"""The published checkpoints, read without running pickled code."""
