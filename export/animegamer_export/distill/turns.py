"""Turns to distill from: a bundle predicts the shots of games, then what is drawn for each is made and stored.

The work folder has shards: `shots-0003.safetensors` has the turns of GAMES_EACH games, and a shard of another kind with
the same number has a row for each of these turns. A shard is there whole or not at all, so an interrupted run goes on
behind the last one.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from animegamer_export.evaluate.fidelity import TurnInput, denoise_turn
from animegamer_export.evaluate.turns import predict_turn, sample_instructions
from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.bundle.manifest import World
from animegamer_rt.errors import InstructionError, OutputError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.game_folder import GAME_FILE
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction, motion_scope

from .files import earlier, write_whole

GAMES_EACH, TURNS_EACH = 16, 3
"""Games of a shard, and turns of a game in the bundle's own words."""
SHOTS, TEACHER, CLIPS = "shots", "teacher", "clips"
"""Kinds of shards. Shots: `shot` f16 [N, 226, D], `scope` f32 [N] and `seed` i64 [N], of the noise of a first turn.
Teacher: its `target` f16 [N, 5, 16, h, w]. Clips: `latent` f16 [N, 5, 16, h, w] by the student, and the full decoder's
`frames` u8 [N, 17, H, W, 3] of it."""
FIRST_SEED = 40000

Shard = Mapping[str, Tensor]
Game = Sequence[str]
"""The instructions of a game."""


def read_games(path: Path) -> list[Game]:
    """The games below a folder of saved games, or in a text file: a line for each turn, an empty one between games.

    Raises OutputError if there is none.
    """
    games, file = list[Game](), path
    try:
        if path.is_dir():
            for file in sorted(path.rglob(GAME_FILE)):
                texts = [turn["instruction"] for turn in read_json(file)["turns"]]
                if not all(isinstance(text, str) for text in texts):
                    raise TypeError
                games.append(texts)
        else:
            text = path.read_text(encoding=json.detect_encoding(path.read_bytes()))
            games = [part.strip().splitlines() for part in text.split("\n\n")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "no saved game" if isinstance(error, (KeyError, TypeError)) else f"cannot read the games ({error})"
        raise OutputError(what, where=file, do="give a folder of saved games") from error
    if not any(games):
        expected = f"folders with a {GAME_FILE}, or a file with a line for each turn"
        raise OutputError("no game was found", where=path, expected=expected)
    return [game for game in games if game]


def sample_games(world: World, turns: int) -> list[Game]:
    """Games in the bundle's own words, `turns` turns together or a few more."""
    texts = iter(sample_instructions(world, turns + TURNS_EACH, FIRST_SEED))
    return [[next(texts) for _ in range(TURNS_EACH)] for _ in range(-(-turns // TURNS_EACH))]


def repeated(games: Sequence[Game], turns: int) -> list[Game]:
    """The games in another order, as often as it takes to reach the number of turns."""
    chance, found = random.Random(FIRST_SEED), list[Game]()
    while sum(map(len, found)) < turns:
        found += chance.sample(list(games), len(games))
    while sum(map(len, found[:-1])) >= turns:
        found.pop()
    return found


def predict_shots(pipeline: Pipeline, games: Sequence[Game], first_seed: int) -> Shard:
    """The shots of the games' turns, each after its game's earlier ones, which need not be drawn for it.

    A text that is refused is left out. Turn k has the noise seed `first_seed` + k. Raises InstructionError if all are
    refused.
    """
    rules, shots, scopes = pipeline.bundle.manifest.compatibility, [], []
    refused = InstructionError("no game has a turn")
    for game in games:
        session = Session.start(pipeline.bundle, first_seed)
        for text in game:
            try:
                prediction, _ = predict_turn(pipeline, session, Instruction.parse(text))
            except InstructionError as error:
                refused = error
                continue
            shots.append(torch.from_numpy(prediction.shot).half())
            scopes.append(motion_scope(prediction.game_state, rules.motion_table, rules.motion_source))
    if not shots:
        raise refused
    return {"shot": torch.stack(shots), "scope": torch.tensor(scopes), "seed": first_seed + torch.arange(len(shots))}


def draw_targets(pipeline: Pipeline, shots: Shard) -> Shard:
    """What the pipeline's plan draws for a shard of shots."""
    drawn = []
    for shot, scope, seed in zip(*(shots[name] for name in ("shot", "scope", "seed")), strict=True):
        turn = TurnInput(shot.float().numpy(), float(scope), int(seed))
        drawn.append(torch.from_numpy(denoise_turn(pipeline.denoiser, turn)[0]).half())
    return {"target": torch.stack(drawn)}


class Rows:
    """The rows of a folder's shards, read from the files when they are needed; kinds with the same numbers together."""

    def __init__(self, folder: Path, kinds: Sequence[str], numbers: Iterable[int]) -> None:
        self._places: list[tuple[int, int]] = []
        self._files: list[list[tuple[Any, str]]] = []
        for number in numbers:
            files: list[Any] = []
            for path in (shard_path(folder, kind, number) for kind in kinds):
                with earlier(path):
                    files.append(safe_open(path, framework="pt"))
            names = [(file.get_slice(name), name) for file in files for name in file.keys()]
            self._places += [(len(self._files), row) for row in range(names[0][0].get_shape()[0])]
            self._files.append(names)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Shard:
        """The tensors of a row, without its dimension."""
        file, row = self._places[index]
        return {name: part[row : row + 1][0] for part, name in self._files[file]}

    def stack(self, indices: Iterable[int]) -> dict[str, Tensor]:
        """The tensors of these rows."""
        rows = [self[index] for index in indices]
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def fill(
    folder: Path, kind: str, numbers: Sequence[int], make: Callable[[int], Shard], log: Callable[[str], object] = print
) -> None:
    """Makes and writes the shards of a kind that the folder lacks. `make`: number -> shard."""
    missing = [number for number in numbers if not shard_path(folder, kind, number).exists()]
    started = time.monotonic()
    for done, number in enumerate(missing, start=1):
        shard = {name: one.contiguous() for name, one in make(number).items()}
        write_whole(shard_path(folder, kind, number), partial(save_file, shard))
        left = (time.monotonic() - started) / done * (len(missing) - done) / 3600
        log(f"{kind}: {len(numbers) - len(missing) + done} of {len(numbers)} shards, {left:.2f} hours left")


def read_shard(folder: Path, kind: str, number: int) -> Shard:
    """A whole shard."""
    path = shard_path(folder, kind, number)
    with earlier(path):
        return load_file(path)


def shard_path(folder: Path, kind: str, number: int) -> Path:
    """The file of a shard."""
    return folder / f"{kind}-{number:04d}.safetensors"
