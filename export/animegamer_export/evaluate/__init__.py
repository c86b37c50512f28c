"""Measures how close the clips of other plans and precisions are to the exact ones."""
