"""Reads labelled instructions, one turn per line, as in benchmarks/language/development.jsonl."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from animegamer_rt.errors import ConfigError

from .world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES

LABELS: Mapping[str, Collection[Any]] = {
    "motion": MOTIONS,
    "place": PLACES,
    "night": (False, True),
    "level": range(1, 6),
}
"""Labels with one value -> the allowed values."""


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """The instruction of a turn, and what should be seen. None: not judged. outfits: one per name in `who`."""

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
        """The given labels, as in the file."""
        fields = {name: getattr(self, name) for name in ("who", "motion", "place", "night", "outfits", "level")}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items() if v is not None}


def read_games(path: Path) -> list[list[LabelledTurn]]:
    """The games of a file in order, each with its turns in order.

    Raises ConfigError, naming the line, if the file is unreadable, empty or invalid.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError("unreadable games", where=path, found=found, expected="one JSON object per line") from error
    games: dict[int, dict[int, LabelledTurn]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            turn = _parse(json.loads(line))
            if turn.turn in games.setdefault(turn.game, {}):
                raise ValueError(f"turn {turn.turn} of game {turn.game} appears twice")
        except (ValueError, TypeError, KeyError) as error:
            expected = "a turn as in benchmarks/language/README.md"
            raise ConfigError("invalid turn", where=f"{path}, line {number}", found=error, expected=expected) from error
        games[turn.game][turn.turn] = turn
    if not games:
        raise ConfigError("no turns", where=path, found="an empty file", expected="one JSON object per line")
    return [[game[turn] for turn in sorted(game)] for game in games.values()]


def _parse(fields: Mapping[str, Any]) -> LabelledTurn:
    """Raises ValueError, TypeError or KeyError."""
    who, outfits = tuple(fields["who"]), tuple(fields["outfits"]) if "outfits" in fields else None
    if not who or len(set(who)) != len(who) or not set(who) <= set(CHARACTERS):
        raise ValueError(f'"who": {json.dumps(who)}, not distinct names of {", ".join(CHARACTERS)}')
    if outfits is not None and (len(outfits) != len(who) or not set(outfits) <= set(OUTFITS)):
        raise ValueError(f'"outfits": {json.dumps(outfits)}, not one of {", ".join(OUTFITS)} per name in "who"')
    labels = {name: fields[name] for name in LABELS if name in fields}
    for name, value in labels.items():
        if value not in LABELS[name]:
            raise ValueError(f'"{name}": {json.dumps(value)}, not one of {", ".join(map(str, LABELS[name]))}')
    return LabelledTurn(int(fields["game"]), int(fields["turn"]), str(fields["say"]), who, outfits=outfits, **labels)
