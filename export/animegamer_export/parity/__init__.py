"""Parity with the published reference: its recorded inputs, weights and outputs compared with our networks."""
