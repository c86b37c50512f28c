"""What games keep that nobody says again: people, place, hour and clothes after 1, 3 and 10 turns of motion alone.

    python -m animegamer_pocket.kept --plan balanced --seeds 1,2 --out KEPT.json

Each scene is played twice: a game starts from a sentence that says all of it, another from its rendered picture,
shifted, cut, recoloured or made smaller. Then ten turns name a motion only. The judge reads the first, third and tenth.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import animegamer_rt
from animegamer_rt.errors import AnimeGamerError, OutputError
from animegamer_rt.state.instruction import Instruction
from animegamer_rt.video import write_png

from .evaluate import fields_right, seeds
from .judge.reading import Judge
from .labelled import LabelledTurn
from .reader.picture import change_picture
from .world.captions import paraphrase
from .world.render import render
from .world.sampling import sample_scenes
from .world.scene import ADVERBS, Scene

STARTS = ("text", "picture")
COUNTED = (1, 3, 10)
"""The turns after the start whose clips are drawn and read; those between are predicted only."""
FIELDS = {"who": "people", "place": "place", "night": "hour", "outfits": "clothes"}
ORDERS = (
    "now jump",
    "sit down for a bit",
    "wave",
    "dance!",
    "take a little walk",
    "lie down",
    "run",
    "bow please",
    "fly",
    "and now wave again",
)
_SCENE_SEED = 31


def kept_scenes(count: int) -> list[Scene]:
    """Scenes of combinations that training never sees, every second one with two characters."""
    found = sample_scenes(20 * count, _SCENE_SEED, train=False)
    pairs, singles = (iter([scene for scene in found if scene.is_pair is pair]) for pair in (True, False))
    return [next(pairs if index % 2 else singles) for index in range(count)]


def start_game(player: animegamer_rt.Player, scene: Scene, number: int, start: str, seed: int) -> animegamer_rt.Game:
    """A game whose start shows the scene: said in a sentence, or seen in a picture."""
    rng = random.Random(1000 * seed + number)
    if start == "text":
        game = player.start(seed=seed)
        _pass_turn(game, paraphrase(scene, rng, {"position"}))
        return game
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "start.png"
        write_png(picture, np.rint(change_picture(render(scene, 1)[0], rng)).astype(np.uint8))
        return player.start(seed=seed, image=picture, motion=f"{ADVERBS[scene.level - 1]} {scene.motion}")


def _pass_turn(game: animegamer_rt.Game, text: str) -> None:
    """Play a turn without drawing its clip."""
    pipeline, session, instruction = game.player.pipeline, game.session, Instruction.parse(text)
    scene = None if pipeline.reader is None else pipeline.reader.read(instruction, session.scene).scene
    session.commit(instruction, pipeline.predict(session, instruction), scene)


def kept_after(
    player: animegamer_rt.Player, judge: Judge, scene: Scene, number: int, start: str, seed: int
) -> Iterator[tuple[int, dict[str, bool]]]:
    """Play one game; yields each counted turn with the `FIELDS` that its clip still shows."""
    game = start_game(player, scene, number, start, seed)
    for turn in range(1, max(COUNTED) + 1):
        order = ORDERS[(number + turn) % len(ORDERS)]
        if turn not in COUNTED:
            _pass_turn(game, order)
            continue
        (reading,) = judge.read(game.turn(order).frames[None])
        asked = LabelledTurn(
            number, turn, order, scene.characters, place=scene.place, night=scene.night, outfits=scene.outfits
        )
        right = fields_right(asked, reading)
        yield turn, {name: right[field] for field, name in FIELDS.items()}


def measure_kept(player: animegamer_rt.Player, judge: Judge, games: int, seeds: Sequence[int]) -> dict[str, Any]:
    """The shares, 0..1, by start, turn and field."""
    counts: dict[str, dict[int, list[dict[str, bool]]]] = {start: {turn: [] for turn in COUNTED} for start in STARTS}
    for seed in seeds:
        for number, scene in enumerate(kept_scenes(games)):
            for start in STARTS:
                for turn, right in kept_after(player, judge, scene, number, start, seed):
                    counts[start][turn].append(right)
            print(f"seed {seed}: {number + 1} of {games} games", end="\r" if sys.stdout.isatty() else "\n", flush=True)
    return {
        start: {
            str(turn): {name: round(sum(one[name] for one in rows) / len(rows), 4) for name in FIELDS.values()}
            for turn, rows in turns.items()
        }
        for start, turns in counts.items()
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as a table of Markdown."""
    lines = [
        f"| start, turns later | {' | '.join(FIELDS.values())} |",
        f"| --- |{' --- |' * len(FIELDS)}",
    ]
    for start in STARTS:
        for turn, shares in figures[start].items():
            lines.append(f"| {start}, {turn} | {' | '.join(f'{shares[name]:.2f}' for name in FIELDS.values())} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 for a user error."""
    parser = argparse.ArgumentParser(
        prog="python -m animegamer_pocket.kept", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--bundle", default="pocket", help="name or folder (default: pocket)")
    parser.add_argument("--plan", help="exact, balanced or fast (default: the bundle's default)")
    parser.add_argument("--seeds", type=seeds, default=[1], metavar="N,N", help="each game is played once a seed")
    parser.add_argument("--games", type=int, default=16, help="scenes to start from (default: 16)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the figures, JSON")
    options = parser.parse_args(argv)
    try:
        with animegamer_rt.open(options.bundle, plan=options.plan) as player:
            figures = measure_kept(player, Judge(), options.games, options.seeds)
            facts = {"bundle": player.bundle.fingerprint[:16], "plan": player.pipeline.plan_name}
        record = {**facts, "seeds": options.seeds, "games": options.games, **figures}
        try:
            options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError("cannot write", where=options.out, found=error.strerror) from error
    except AnimeGamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
