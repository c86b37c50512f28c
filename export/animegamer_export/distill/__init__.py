"""Cheaper networks made of a bundle's own, and the plan that they play."""
