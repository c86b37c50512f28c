"""Parity with the published reference: recorded inputs, weights and outputs against our networks, number by number."""

from __future__ import annotations

from animegamer_export.parity.report import Result, check_folder, main

__all__ = ["Result", "check_folder", "main"]
