"""Reads and writes `mllm-output.pt`, which the published `inference_MLLM.py` hands to `inference_Decoder.py`.

A torch.save of {"turn_1": [shot bf16 [1, 226, D], instruction, [motion level, social, entertainment, stamina]], ..}.
Source: MODEL.md section 2. Reading runs no code from the file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from animegamer_export.checkpoints.files import has_numbers, kind_of, load_torch
from animegamer_rt.bundle.files import write_file
from animegamer_rt.errors import CheckpointError
from animegamer_rt.state.game import MOTION_TABLES, OTHER_MOTION_SCOPE

ENTRY = "turn_1, turn_2 and so on, each a shot [1, 226, D] of numbers, the instruction, and four whole numbers"


@dataclass(frozen=True, slots=True)
class HandedTurn:
    """One turn of the file: shot f32 [226, D], and the strengths as they are there, in the order of the prompt.

    The published code can write strengths beyond -5..5: an answer that is no strength is read like one.
    """

    shot: npt.NDArray[np.float32]
    instruction: str
    strengths: tuple[int, int, int, int]

    @property
    def motion_scope(self) -> float:
        """The motion scope that the published decoder script gives the turn."""
        return MOTION_TABLES["paper"].get(self.strengths[0], OTHER_MOTION_SCOPE)


def read_turns(path: Path, shape: tuple[int, int]) -> dict[int, HandedTurn]:
    """The turns by number, in order. shape: of a bundle's shot. Raises CheckpointError for any other content."""
    loaded = load_torch(path)
    if not isinstance(loaded, dict) or not loaded:
        raise CheckpointError("no turns", where=path, do="pass the mllm-output.pt of inference_MLLM.py")
    turns = {str(name): _turn(path, str(name), entry, shape) for name, entry in loaded.items()}
    return {int(name.removeprefix("turn_")): turns[name] for name in sorted(turns, key=lambda name: (len(name), name))}


def write_turns(path: Path, turns: Sequence[HandedTurn]) -> None:
    """Writes the file whole; the published decoder script plays it. Raises OutputError."""
    made = {
        f"turn_{number}": [torch.from_numpy(turn.shot)[None].bfloat16(), turn.instruction, list(turn.strengths)]
        for number, turn in enumerate(turns, start=1)
    }
    content = io.BytesIO()
    torch.save(made, content)
    write_file(path, content.getvalue())


def _turn(path: Path, name: str, entry: Any, shape: tuple[int, int]) -> HandedTurn:
    shot, text, numbers = entry if isinstance(entry, (list, tuple)) and len(entry) == 3 else (None, None, None)
    if (
        not re.fullmatch(r"turn_[1-9][0-9]{0,5}", name)
        or not isinstance(shot, torch.Tensor)
        or not (shot.dtype.is_floating_point and has_numbers(shot))
        or not isinstance(text, str)
        or not isinstance(numbers, (list, tuple))
        or [type(number) for number in numbers] != [int] * 4
    ):
        parts = [shot, text, *(numbers if isinstance(numbers, (list, tuple)) else [numbers])]
        found = " and ".join(sorted({kind_of(one) for one in parts})) if text else kind_of(entry)
        wrong: dict[str, tuple[object, object]] = {f"{name:.40}": (found, ENTRY)}
        raise CheckpointError("not a turn of inference_MLLM.py", where=path, misshapen=wrong, do="pass its own file")
    if shot.shape not in (shape, (1, *shape)):
        wrong = {name: (list(shot.shape), [1, *shape])}
        raise CheckpointError("shots of another model", where=path, misshapen=wrong, do="use the bundle of its release")
    values = shot.detach().float().resolve_neg().reshape(shape)
    if not values.isfinite().all():
        raise CheckpointError(f"the shot of {name} is not finite", where=path, do="predict it again, in bfloat16")
    first, second, third, fourth = numbers
    return HandedTurn(values.numpy(), text, (first, second, third, fourth))
