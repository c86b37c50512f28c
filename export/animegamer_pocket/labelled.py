"""Reads files of sentences with labels: a turn a line, as benchmarks/language/development.jsonl has them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from animegamer_rt.errors import ConfigError

from .world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES

KEYS = ("game", "turn", "say", "who", "motion", "place", "night", "outfits", "level", "voice")


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """What is said in a turn, and what should be seen. None: not judged. outfits: one for each of `who`."""

    game: int
    turn: int
    say: str
    who: tuple[str, ...]
    motion: str | None = None
    place: str | None = None
    night: bool | None = None
    outfits: tuple[str, ...] | None = None
    level: int | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """The labels that are given, as in the file."""
        fields = {name: getattr(self, name) for name in ("who", "motion", "place", "night", "outfits", "level")}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items() if v is not None}


def read_games(path: Path) -> list[list[LabelledTurn]]:
    """The games of a file, in the file's order, each with its turns in rising order.

    Raises:
        ConfigError: the file cannot be read, is empty, or a line is wrong; the error names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError("cannot read the games", where=path, found=found, expected="a JSON object a line") from error
    games: dict[int, dict[int, LabelledTurn]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        turn = _parse(line, f"{path}, line {number}")
        game = games.setdefault(turn.game, {})
        if turn.turn in game:
            raise _wrong(f"{path}, line {number}", f"turn {turn.turn} of game {turn.game} twice", "each turn once")
        game[turn.turn] = turn
    if not games:
        raise ConfigError("no turns", where=path, found="an empty file", expected="a JSON object a line")
    return [[game[turn] for turn in sorted(game)] for game in games.values()]


def _parse(line: str, where: str) -> LabelledTurn:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise _wrong(where, str(error), "a JSON object") from error
    if not isinstance(fields, dict):
        raise _wrong(where, f"a {type(fields).__name__}", "a JSON object")
    for key in fields.keys() - set(KEYS):
        if near := difflib.get_close_matches(key, KEYS, 1, 0.75):  # else it is somebody's own note
            raise _wrong(where, f"the key {key!r}", f"{near[0]!r}")
    who = _words(fields, "who", CHARACTERS, where)
    if who is None or len(set(who)) != len(who) or not who:
        raise _wrong(where, f'"who": {json.dumps(fields.get("who"))}', "a list of different characters")
    outfits = _words(fields, "outfits", OUTFITS, where)
    if outfits is not None and len(outfits) != len(who):
        raise _wrong(where, f"{len(outfits)} outfits for {len(who)} characters", 'one for each of "who"')
    say = fields.get("say")
    if not isinstance(say, str):
        raise _wrong(where, f'"say": {json.dumps(say)}', "what is typed, a text")
    night = fields.get("night")
    if night is not None and not isinstance(night, bool):
        raise _wrong(where, f'"night": {json.dumps(night)}', "true or false")
    game, turn = _number(fields, "game", where), _number(fields, "turn", where)
    if game is None or turn is None:
        raise _wrong(where, "no number of game or turn", '"game" and "turn", from 1')
    return LabelledTurn(
        game=game,
        turn=turn,
        say=say,
        who=who,
        motion=_word(fields, "motion", MOTIONS, where),
        place=_word(fields, "place", PLACES, where),
        night=night,
        outfits=outfits,
        level=_number(fields, "level", where, 5),
    )


def _word(fields: Mapping[str, Any], key: str, known: tuple[str, ...], where: str) -> str | None:
    value: str | None = fields.get(key)
    if value is not None and value not in known:
        raise _wrong(where, f'"{key}": {json.dumps(value)}', f"one of {', '.join(known)}")
    return value


def _words(fields: Mapping[str, Any], key: str, known: tuple[str, ...], where: str) -> tuple[str, ...] | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or any(word not in known for word in value):
        raise _wrong(where, f'"{key}": {json.dumps(value)}', f"a list of {', '.join(known)}")
    return tuple(value)


def _number(fields: Mapping[str, Any], key: str, where: str, most: int | None = None) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or (most is not None and value > most):
        raise _wrong(where, f'"{key}": {json.dumps(value)}', f"a whole number from 1{f' to {most}' if most else ''}")
    return value


def _wrong(where: str, found: str, expected: str) -> ConfigError:
    return ConfigError("a turn is wrong", where=where, found=found, expected=expected)
