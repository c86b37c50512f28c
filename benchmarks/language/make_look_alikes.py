"""Writes look_alikes.txt of the server's block list: which characters look like a Latin letter.

From Unicode's confusables (Unicode License v3) as packaged in confusable_homoglyphs (MIT), and from characters' names:

    pip download --no-deps confusable_homoglyphs==3.3.1
    python benchmarks/language/make_look_alikes.py confusable_homoglyphs-3.3.1-py2.py3-none-any.whl
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
import zipfile
from collections import defaultdict
from pathlib import Path

TABLE = Path(__file__).parents[2] / "runtime" / "animegamer_rt" / "serving" / "server" / "look_alikes.txt"
HEAD = """\
# Characters that look like Latin letters, in hexadecimal; "il" marks those that may be an i or an l.
# Written by benchmarks/language/make_look_alikes.py from Unicode's confusables and names of characters:
# Copyright (c) 1991-2024 Unicode, Inc., Unicode License v3 (https://www.unicode.org/license.txt).
"""
NAMED = re.compile(
    r"(?:LATIN (?:CAPITAL |SMALL )?LETTER (?:\w+ )?|(?:NEGATIVE |CROSSED NEGATIVE )\w+ LATIN CAPITAL LETTER "
    r"|REGIONAL INDICATOR SYMBOL LETTER )(?:CAPITAL |SMALL )?([A-Z])(?: WITH .+)?"
)
BY_EYE = {"η": "n", "σ": "o", "ω": "w", "п": "n", "ь": "b", "я": "r", "и": "n"}
"""Small letters that Unicode compares with nothing."""
EITHER = frozenset("lI1|")


def letter_of(character: str, partners: set[str]) -> str:
    """What a character looks like, in small letters; empty if it looks like no Latin letter."""
    if partners & EITHER:
        return "il"
    if words := sorted(
        (one.lower() for one in partners if one.isascii() and one.isalpha()), key=lambda one: (len(one), one)
    ):
        return words[0]
    named = NAMED.fullmatch(unicodedata.name(character, ""))
    return named[1].lower() if named else BY_EYE.get(character, "")


def main(wheel: str) -> None:
    """Write the table."""
    with zipfile.ZipFile(wheel) as package:
        pairs = json.loads(package.read("confusable_homoglyphs/confusables.json"))
    found: dict[str, str] = {}
    # Compatibility forms and accents are taken away before the table is asked.
    every = [
        character
        for character in map(chr, range(128, sys.maxunicode + 1))
        if unicodedata.category(character)[0] in "LNSP" and unicodedata.normalize("NFKD", character) == character
    ]
    for character in every:
        if letter := letter_of(character, {one["c"] for one in pairs.get(character, ())}):
            found[character] = letter
    for small in every:  # many small letters of Cyrillic and Greek are drawn as small capitals
        capital = small.upper()
        if small not in found and len(capital) == 1 and capital != small and capital in found:
            found[small] = found[capital]
    lines = defaultdict(list)
    for character, letter in sorted(found.items()):
        lines[letter].append(f"{ord(character):04X}")
    TABLE.write_text(HEAD + "".join(f"{letter} {' '.join(lines[letter])}\n" for letter in sorted(lines)), "ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
