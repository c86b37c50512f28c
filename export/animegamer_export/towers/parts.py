"""The towers of an export: opens their folders, checks that they match the encoder, and makes the parts to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from animegamer_export.checkpoints.files import Shape, count_pieces
from animegamer_export.checkpoints.folders import DOWNLOAD_AGAIN, read_json
from animegamer_export.checkpoints.weight_map import wanted_shapes
from animegamer_export.onnx_io.write import Graph
from animegamer_export.parts.streamed.parts import StreamedPart, Weights, meta_module
from animegamer_export.towers.files import open_image_tower, open_text_tower
from animegamer_export.towers.image import ImageTower, ImageTowerSize
from animegamer_export.towers.text import TextTower, TextTowerSize
from animegamer_rt.bundle.manifest import MotionTokenizer
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.encoder import EncoderSize

TEXT, IMAGE = "text_tower", "image_tower"
TOKENIZER = "spiece.model"
"""T5's sentencepiece file, as transformers names it."""
PUBLISHED_TOKENIZER = "d60acb128cf7b7f2536e8f38a5b18a05535c9e14c7a355904270e15b0945ea86"
"""sha256 of that file of google/t5-v1_1-xxl."""
MOTION_MODEL = "motion.model"
"""T5's file in a bundle, whose prompt has its own tokenizer."""


@dataclass(frozen=True, slots=True)
class Towers:
    """Sizes and weights of both towers.

    tokenizer: the file to copy as the bundle's MOTION_MODEL. end: the end-of-text id.
    """

    text: tuple[TextTowerSize, Weights]
    image: tuple[ImageTowerSize, Weights]
    tokenizer: Path
    end: int = 1

    def part(self, name: str) -> StreamedPart:
        """A tower as a part to write."""
        return text_tower_part(*self.text) if name == TEXT else image_tower_part(*self.image)

    def shapes(self, name: str) -> dict[str, Shape]:
        """Name and shape of every weight of a tower."""
        return tower_shapes(self.text[0] if name == TEXT else self.image[0])

    @property
    def motion_tokenizer(self) -> MotionTokenizer:
        """The manifest's entry of the text tower's tokenizer."""
        return MotionTokenizer(MOTION_MODEL, space_first=True, end=self.end)


def open_towers(t5: Path, clip: Path, encoder: EncoderSize) -> Towers:
    """Opens the towers in the folders of transformers (T5) and open_clip and matches all keys.

    Raises CheckpointError for other files, and for towers that the encoder was not trained with.
    """
    text, image, tokenizer = open_text_tower(t5), open_image_tower(clip), t5 / TOKENIZER
    take = "use spiece.model of google/t5-v1_1-xxl"
    pieces, end = (
        count_pieces(tokenizer, PUBLISHED_TOKENIZER, take),
        read_json(t5 / "config.json").get("eos_token_id", 1),
    )
    if pieces > text[0].vocabulary:
        raise CheckpointError(
            "wrong tokenizer for the text tower",
            where=tokenizer,
            misshapen={"pieces": (pieces, f"at most {text[0].vocabulary}")},
            do=take,
        )
    if not isinstance(end, int) or not 0 <= end < text[0].vocabulary:
        raise CheckpointError(f"eos_token_id is {end!r}, not a token", where=t5 / "config.json", do=DOWNLOAD_AGAIN)
    _check_fit(t5, "text features", (text[0].tokens, text[0].hidden), (encoder.text_tokens, encoder.text_width))
    _check_fit(
        clip, "image features", (image[0].grid ** 2, image[0].width), (encoder.image_tokens, encoder.image_width)
    )
    return Towers(text, image, tokenizer, end)


def tower_shapes(size: TextTowerSize | ImageTowerSize) -> dict[str, Shape]:
    """Name and shape of every weight of a tower of that size."""
    with torch.device("meta"):
        return wanted_shapes({"": TextTower(size) if isinstance(size, TextTowerSize) else ImageTower(size)})


def text_tower_part(size: TextTowerSize, weights: Weights) -> StreamedPart:
    """The text tower as a part: ids int64 [1, 30] -> text_features [1, 30, C]."""
    ids = torch.arange(size.tokens)[None] % size.vocabulary
    return _part(TEXT, meta_module(lambda: TextTower(size)), {"ids": ids}, weights, ("relative_bias",))


def image_tower_part(size: ImageTowerSize, weights: Weights) -> StreamedPart:
    """The image tower as a part: picture [1, 3, side, side] in -1..1 -> image_features [1, 196, C]."""
    picture = torch.rand(1, 3, size.side, size.side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return _part(IMAGE, meta_module(lambda: ImageTower(size)), {"picture": picture}, weights, ("mean", "deviation"))


def _part(
    name: str, module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], weights: Weights, exact: tuple[str, ...]
) -> StreamedPart:
    graph = Graph(name, module, inputs, (name.replace("tower", "features"),))
    return StreamedPart([graph], f"{name}.weights", lambda key: weights.merged(key, torch.float32), exact)


def _check_fit(folder: Path, what: str, found: tuple[int, int], expected: tuple[int, int]) -> None:
    if found != expected:
        raise CheckpointError(
            "not the tower that the encoder was trained with",
            where=folder,
            misshapen={what: (list(found), list(expected))},
            do="use google/t5-v1_1-xxl and laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
        )
