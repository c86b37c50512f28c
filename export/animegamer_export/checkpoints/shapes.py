"""Looks up the shapes of a checkpoint that determine a network's sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from animegamer_rt.errors import CheckpointError

from .files import Shape, TensorFile
from .key_names import KeyNaming


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of a file's weights, under any key that the naming knows."""

    file: TensorFile
    what: str
    naming: KeyNaming

    def shapes_by_weight(self) -> dict[str, Shape]:
        pieces = ((self.naming.piece(key), shape) for key, shape in self.file.shapes.items())
        return {piece.weight: shape for piece, shape in pieces if piece.role in ("base", "copy")}

    def __call__(self, weight: str, axes: int) -> Shape:
        shape = self.shapes_by_weight().get(weight)
        if shape is None:
            raise self.refusal(missing=[weight])
        if len(shape) != axes or 0 in shape:
            raise self.refusal(misshapen={weight: (list(shape), f"{axes} axes, none empty")})
        return shape

    def count(self, pattern: str) -> int:
        number, known = 0, self.shapes_by_weight()
        while pattern.format(number) in known:
            number += 1
        if number == 0:
            raise self.refusal(missing=[pattern.format(0)])
        return number

    def refusal(self, **found: Any) -> CheckpointError:
        what = f"not a {self.what}: its sizes cannot be read"
        return CheckpointError(
            what, where=self.file.where, do="pass the published file, or your own with all weights", **found
        )
