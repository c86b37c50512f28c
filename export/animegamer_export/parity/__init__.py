"""Parity with the published reference: recorded inputs, weights and outputs against our networks, number by number."""
