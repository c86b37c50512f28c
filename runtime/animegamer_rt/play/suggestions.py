"""Completions of an instruction from the words that a bundle's model knows."""

from __future__ import annotations

from collections.abc import Iterable

from animegamer_rt.bundle.manifest import World

FIELDS = ("Character", "Motion", "Background")


def completions(line: str, world: World) -> list[str]:
    """Whole lines that complete `line`, best first. For an empty line: the examples and the first field.

    After `Character:`, `Motion:` or `Background:` only words of that field; in free text, all known words that start
    like the last words of the line.
    """
    if not line.strip():
        return [*world.examples, f"{FIELDS[0]}: "]
    field, start = _field_at(line)
    if field:
        start += len(line[start:]) - len(line[start:].lstrip())
        return _unique(line[:start] + phrase for phrase in _continue(line[start:], _words(field, world)))
    fields = [f"{name}: " for name in FIELDS if f"{name}:" not in line]
    known = [*fields, *world.characters, *_words("Motion", world), *world.places]
    starts = [0, *(place + 1 for place, letter in enumerate(line) if letter in " ;")]
    found = []
    for start in starts:
        if tail := line[start:]:
            found += [line[:start] + phrase for phrase in _continue(tail, known)]
    return _unique(found)


def _field_at(line: str) -> tuple[str, int]:
    """The caption field at the end of the line and where its value starts; "" in free text."""
    begin = line.rfind(";") + 1
    name, colon, _ = line[begin:].partition(":")
    if colon and name.strip() in FIELDS:
        return name.strip(), begin + len(name) + 1
    return "", 0


def _words(field: str, world: World) -> list[str]:
    if field == "Character":
        return list(world.characters)
    if field == "Background":
        times = [] if any(place.split()[0] in ("day", "night") for place in world.places) else ["day ", "night "]
        return [*world.places, *(time + place for time in times for place in world.places)]
    return [*world.motions, *(f"{adverb} {motion}" for adverb in world.adverbs for motion in world.motions)]


def _continue(tail: str, phrases: Iterable[str]) -> list[str]:
    return [phrase for phrase in phrases if phrase.lower().startswith(tail.lower()) and phrase != tail]


def _unique(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))
