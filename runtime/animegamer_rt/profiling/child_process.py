"""Describes how a child process failed, from what it printed."""

from __future__ import annotations

KEPT_CHARACTERS = 500


def describe_failure(output: str) -> str:
    """The last line, which names the cause, then what was printed before it, shortened to its end."""
    *before, cause = output.strip().splitlines() or ["it printed nothing"]
    context = "\n".join(before)[-KEPT_CHARACTERS:]
    return f"{cause}\n(printed before that: {context})" if context else cause
