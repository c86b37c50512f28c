"""Measures how often instructions are understood and drawn: plays labelled games; the judge reads each clip.

    python -m animegamer_pocket.evaluate --games FILE.jsonl --plan balanced --seeds 1,2 --out REPORT.json

A turn takes about 0.6 s with the plan balanced on one free core: 205 turns with two seeds take some four minutes. The
judge is `judge/judge.onnx`, its accuracy is in `judge/judge.json`. benchmarks/language/README.md describes the labels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import animegamer_rt
from animegamer_export.evaluate.metrics import share
from animegamer_rt.errors import AnimeGamerError, InstructionError, OutputError

from .evaluation import looks
from .judge.reading import Judge, Reading
from .labelled import LabelledTurn, read_games

FIELDS = ("who", "motion", "place", "night", "outfits", "level_within_one", "one_of_each")
MUST_BE_RIGHT = ("who", "one_of_each", "place", "night", "motion")
"""The fields of FIELDS that `all_right` requires, if a turn has them."""
SHARES = (*FIELDS, "all_right", "all_right_first", "all_right_later")
"""The shares of a report."""
LOOKS = ("edges", "flicker", "join")
"""The means of a report, in grey levels (evaluation/looks.py)."""
FIGURES = (*SHARES, *LOOKS)


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A played turn. reading: of what is shown then; None if nothing is. right: the judged fields. refused: why.

    looks: those of LOOKS that it has.
    """

    asked: LabelledTurn
    first: bool
    seed: int
    reading: Reading | None
    right: dict[str, bool]
    refused: str = ""
    looks: dict[str, float] = field(default_factory=dict)

    @property
    def all_right(self) -> bool:
        """Exactly the requested characters, once each, with the right place, hour and motion if labelled."""
        return all(self.right.get(name, True) for name in MUST_BE_RIGHT)

    @property
    def wrong(self) -> list[str]:
        """The names of the wrong fields."""
        return [name for name, right in self.right.items() if not right]


def fields_right(asked: LabelledTurn, reading: Reading | None) -> dict[str, bool]:
    """Which of a turn's labelled fields are right; none without a reading.

    Clothes are right if every requested character is seen and wears its own.
    """
    has = {
        "motion": asked.motion,
        "place": asked.place,
        "night": asked.night,
        "outfits": asked.outfits,
        "level_within_one": asked.level,
    }
    given = [name for name in FIELDS if has.get(name, True) is not None]
    if reading is None:
        return dict.fromkeys(given, False)
    worn = dict(zip(asked.who, asked.outfits or (), strict=False))
    right = {
        "who": reading.shows_once_each(frozenset(asked.who)),
        "motion": reading.motion == asked.motion,
        "place": reading.place == asked.place,
        "night": reading.night == asked.night,
        "outfits": all(reading.outfits.get(name) == outfit for name, outfit in worn.items()),
        "level_within_one": asked.level is not None and abs(reading.level - asked.level) <= 1,
        "one_of_each": reading.one_of_each,
    }
    return {name: right[name] for name in given}


def play_games(
    player: animegamer_rt.Player, judge: Judge, games: Sequence[Sequence[LabelledTurn]], seed: int
) -> Iterator[PlayedTurn]:
    """Plays each game from its start with the same seed, and reads every clip."""
    for turns in games:
        game = player.start(seed=seed)
        before: tuple[npt.NDArray[np.uint8], Reading] | None = None
        for number, asked in enumerate(turns):
            try:
                clip = game.turn(asked.say).frames
            except InstructionError as error:  # the picture stays
                kept = before[1] if before is not None else None
                yield PlayedTurn(asked, number == 0, seed, kept, fields_right(asked, kept), str(error))
                continue
            (reading,) = judge.read(clip[None])
            measured = {"edges": looks.edges(clip), "flicker": looks.flicker(clip)}
            if before is not None and (before[1].place, before[1].night) == (reading.place, reading.night):
                measured["join"] = looks.join(before[0], clip)
            before = clip, reading
            found = {name: round(value, 3) for name, value in measured.items() if value is not None}
            yield PlayedTurn(asked, number == 0, seed, reading, fields_right(asked, reading), looks=found)


def report(played: Sequence[PlayedTurn]) -> dict[str, Any]:
    """The shares of right turns, 0..1, and the means of LOOKS; None if no turn has the field. `readings`: every turn.

    A join counts between turns that the judge sees in one place and hour.
    """
    shares = {name: share([turn.right[name] for turn in played if name in turn.right]) for name in FIELDS}
    seen = {name: [turn.looks[name] for turn in played if name in turn.looks] for name in LOOKS}
    return {
        "turns": len(played),
        **shares,
        "all_right": share([turn.all_right for turn in played]),
        "all_right_first": share([turn.all_right for turn in played if turn.first]),
        "all_right_later": share([turn.all_right for turn in played if not turn.first]),
        **{name: round(sum(values) / len(values), 3) if values else None for name, values in seen.items()},
        "readings": [_entry(turn) for turn in played],
    }


def as_lines(record: dict[str, Any]) -> str:
    """A report as JSON with a line for each reading."""
    head = json.dumps({name: value for name, value in record.items() if name != "readings"})
    readings = ",\n".join(json.dumps(reading) for reading in record["readings"])
    return f'{head[:-1]}, "readings": [\n{readings}\n]}}\n'


def _entry(turn: PlayedTurn) -> dict[str, Any]:
    entry = {
        "game": turn.asked.game,
        "turn": turn.asked.turn,
        "seed": turn.seed,
        "say": turn.asked.say,
        "asked": turn.asked.asked,
        "read": None if turn.reading is None else asdict(turn.reading),
        "right": turn.right,
        "all_right": turn.all_right,
        **turn.looks,
    }
    return {**entry, "refused": turn.refused} if turn.refused else entry


def worst(played: Sequence[PlayedTurn], count: int) -> list[PlayedTurn]:
    """The turns with the most wrong fields, of those that have any."""
    wrong = [turn for turn in played if turn.wrong]
    return sorted(wrong, key=lambda turn: (turn.all_right, -len(turn.wrong)))[:count]


def seen_words(reading: Reading | None) -> str:
    """A reading in one line: `2 Tofi (party), walk 3, night beach, smeared`."""
    if reading is None:
        return "refused"
    people = [f"{reading.counts[name]} {name} ({outfit})" for name, outfit in reading.outfits.items()]
    hour = "night" if reading.night else "day"
    words = [*(people or ["nobody"]), f"{reading.motion} {reading.level}", f"{hour} {reading.place}"]
    return ", ".join([*words, "smeared"] if reading.smeared else words)


def _play_all(
    options: argparse.Namespace, plan: str | None, games: Sequence[Sequence[LabelledTurn]]
) -> list[PlayedTurn]:
    judge, started = Judge(), time.monotonic()
    played: list[PlayedTurn] = []
    total = sum(len(turns) for turns in games) * len(options.seeds)
    with animegamer_rt.open(options.bundle, plan=plan) as player:
        for seed in options.seeds:
            for turns in games:
                played += play_games(player, judge, [turns], seed)
                left = (time.monotonic() - started) / len(played) * (total - len(played)) / 60
                right = sum(turn.all_right for turn in played)
                line = f"{len(played)} of {total} turns, {right} all right, {left:.1f} minutes left"
                print(line, end="\r" if sys.stdout.isatty() else "\n", flush=True)
    print()
    return played


def seeds(text: str) -> list[int]:
    """The numbers of a list like 1,2, for argparse."""
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list like 1,2")
    return [int(word) for word in words]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 for a user error."""
    parser = argparse.ArgumentParser(
        prog="python -m animegamer_pocket.evaluate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--games", type=Path, required=True, metavar="FILE", help="labelled turns, JSON lines")
    parser.add_argument("--bundle", default="pocket", help="name or folder (default: pocket)")
    parser.add_argument(
        "--plan",
        type=lambda text: text.split(","),
        default=[None],
        metavar="NAME",
        help="exact, balanced or fast; balanced,fast compares two (default: the bundle's)",
    )
    parser.add_argument(
        "--seeds", type=seeds, default=[1], metavar="N,N", help="comma-separated; each game is played once per seed"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file for the report, JSON")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="print the N worst turns")
    options = parser.parse_args(argv)
    try:
        games, first = read_games(options.games), options.plan[0]
        played = {plan: _play_all(options, plan, games) for plan in options.plan}
        reports = {plan: report(turns) for plan, turns in played.items()}
        record = {**reports[first], "bundle": options.bundle, "plan": first, "seeds": options.seeds}
        if len(reports) > 1:
            record["plans"] = {plan: {name: found[name] for name in FIGURES} for plan, found in reports.items()}
        try:
            options.out.write_text(as_lines(record), encoding="utf-8")
        except OSError as error:
            raise OutputError("cannot write", where=options.out, found=error.strerror) from error
    except AnimeGamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if len(reports) > 1:
        print(" " * 18, *(f"{plan:10s}" for plan in reports))
    for name in ("turns", *FIGURES):
        figures = ("not judged" if found[name] is None else found[name] for found in reports.values())
        print(f"{name:18s}", *(f"{figure!s:10s}" for figure in figures))
    for turn in worst(played[first], options.worst):
        print(f"{turn.asked.game}.{turn.asked.turn} seed {turn.seed}: {turn.asked.say}")
        print(f"    wrong: {', '.join(turn.wrong)}; seen: {seen_words(turn.reading)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
