"""Diagnostic commands: doctor, selftest, info."""
