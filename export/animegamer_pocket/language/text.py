"""Capitals and articles of joined sentences."""

from __future__ import annotations

import re


def cap(text: str) -> str:
    """The first letter as a capital."""
    return text[:1].upper() + text[1:]


def lower(text: str) -> str:
    """The first letter in lower case, unless the text starts with a name or I."""
    first = re.split(r"[ ',-]", text, maxsplit=1)[0]
    names = ("Mirel", "Dovan", "Zelki", "Bixo", "Tofi", "I", "Mr", "Miss", "Master", "Daylight")
    if first in names or first.isupper():
        return text
    return text[:1].lower() + text[1:]


def with_an(text: str) -> str:
    """The text with "an" for "a" before a vowel."""
    return re.sub(r"\b([Aa]) (?=[aeioAEIO][a-z])", r"\1n ", text)
