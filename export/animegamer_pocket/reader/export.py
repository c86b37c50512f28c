"""Adds the instruction reader and the picture reader to a pocket bundle, as parts with their words."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from animegamer_export.onnx_io.write import Case, ExportResult, Graph, check_outputs, round_to_fp16, write
from animegamer_pocket.world.captions import POSITION_WORDS, SPOT_WORDS
from animegamer_pocket.world.scene import (
    ADVERBS,
    CHARACTERS,
    DEFAULT_LEVEL,
    HEIGHT,
    MOTIONS,
    OUTFITS,
    PLACES,
    SPOTS,
    WIDTH,
)
from animegamer_rt.bundle.language_file import read_language
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.manifest import Manifest, ReaderWords
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.language.words import split_words, word_features
from animegamer_rt.stages.reader import encode_scene

from .model import HEADS, LEVELS, OUTPUTS, SCENE_NUMBERS, Reader
from .nine_motions import NINE, NineMotions
from .picture import PICTURE_HEADS, PictureReader, doubt

TOLERANCE = 2e-3
WORDS = ReaderWords(
    people=CHARACTERS,
    clothes=OUTFITS,
    clothes_words=("everyday clothes", "a raincoat", "party clothes"),
    motions=MOTIONS,
    manners=ADVERBS,
    places=PLACES,
    positions=SPOTS,
    position_words=tuple(SPOT_WORDS[spot] for spot in SPOTS),
    undrawable=(
        "angle armor armour beard bomb brightness camel closeup contrast earthquake explode explodes ghost giant gun "
        "hair invisible kill killed kills lightning monster pixel pixels rainbow resolution shoot shoots snake snakes "
        "soundtrack stab stabs sword thunder tornado volume watercolor watercolour zombie zoom"
    ),
    language="language.json",
)
NINE_WORDS = replace(
    WORDS, motions=NINE, positions=tuple(POSITION_WORDS), position_words=tuple(POSITION_WORDS.values())
)
"""Of a bundle whose pictures have nine motions."""
LANGUAGE = Path(__file__).with_name(WORDS.language)
"""The phrases of pocket's answers; the bundle gets a copy."""
_EXAMPLE = "Tofi waves gently in the meadow, at night."


class _PackedPieces(nn.Module):
    """The table of pieces in 8 bits, one scale per row: half the bytes of float16."""

    codes: Tensor
    scales: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        scales = table.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        self.register_buffer("codes", (table / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)

    def forward(self, features: Tensor) -> Tensor:
        return self.codes[features].to(torch.float32) * self.scales[features]


def export_reader(reader: Reader, folder: Path, words: ReaderWords = WORDS) -> ExportResult:
    """Writes reader.onnx: features int64 [1, W, GRAMS] and scene int64 [1, 25] -> logits f32 of `OUTPUTS`.

    words: WORDS or NINE_WORDS.
    """
    reader = round_to_fp16(reader)
    reader.pieces = _PackedPieces(reader.pieces.weight.detach())  # type: ignore[assignment]
    module = NineMotions(reader, OUTPUTS) if words is NINE_WORDS else reader
    inputs = {
        "features": torch.from_numpy(word_features(split_words(_EXAMPLE)))[None],
        "scene": torch.from_numpy(encode_scene(None, words, SCENE_NUMBERS)),
    }
    with torch.no_grad():
        graph = Graph("reader", module, inputs, OUTPUTS, {"features": {1: "words"}})
        parts = write(folder, [graph], "reader.weights")
        case = Case("a sentence", inputs, dict(zip(OUTPUTS, module(*inputs.values()), strict=True)))
        return ExportResult(parts, check_outputs(folder, [("reader", case)], TOLERANCE))


class _AtUsualLevel(nn.Module):
    """The picture reader with a constant output `level`, which pictures do not show, and its `doubt` in absence."""

    usual_level: Tensor
    doubt: Tensor

    def __init__(self, reader: PictureReader) -> None:
        super().__init__()
        self.reader = reader
        self.register_buffer("doubt", torch.tensor([doubt(reader), 0, 0]), persistent=False)
        self.register_buffer("usual_level", torch.eye(LEVELS)[DEFAULT_LEVEL - 1], persistent=False)

    def forward(self, picture: Tensor) -> tuple[Tensor, ...]:
        heads = dict(zip(PICTURE_HEADS, self.reader(picture), strict=True))
        heads["people"] = heads["people"] + self.doubt
        heads["level"] = self.usual_level[None] + 0 * heads["motion"].sum(1, keepdim=True)
        return tuple(heads[name] for name in HEADS)


def export_picture_reader(reader: PictureReader, folder: Path, words: ReaderWords = WORDS) -> ExportResult:
    """Writes picture_reader.onnx: picture f32 [1, 3, 96, 144] in -1..1 -> the logits of `HEADS`, f32."""
    module: nn.Module = _AtUsualLevel(reader.to(memory_format=torch.contiguous_format))  # type: ignore[call-overload]
    if words is NINE_WORDS:
        module = NineMotions(module, tuple(HEADS))
    module = round_to_fp16(module)
    inputs = {"picture": torch.rand(1, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0)) * 2 - 1}
    with torch.no_grad():
        graph = Graph("picture_reader", module, inputs, tuple(HEADS))
        parts = write(folder, [graph], "picture_reader.weights")
        case = Case("a picture", inputs, dict(zip(HEADS, module(*inputs.values()), strict=True)))
        return ExportResult(parts, check_outputs(folder, [("picture_reader", case)], TOLERANCE))


def add_readers(folder: Path, reader: Reader, pictures: PictureReader, vocabulary: str) -> Bundle:
    """Writes both readers into a bundle's folder and manifest; other parts are unchanged.

    A bundle whose words have nine motions keeps them. vocabulary: see `samples.vocabulary`.
    """
    manifest = load(folder).manifest
    words = NINE_WORDS if manifest.reader is not None and manifest.reader.motions == NINE else WORDS
    written = [export_reader(reader, folder, words), export_picture_reader(pictures, folder, words)]
    print("\n".join(one.report() for one in written), flush=True)
    new = {name: part for one in written for name, part in one.parts.items()}
    changed = [file for part in new.values() for file in part.files]
    words = replace(words, vocabulary=vocabulary)
    return add_language(folder, replace(manifest, parts={**manifest.parts, **new}, reader=words), changed)


def add_language(folder: Path, manifest: Manifest, changed: Sequence[str] = ()) -> Bundle:
    """Copy pocket's language file into a bundle's folder and write the manifest. changed: other files that are new.

    Raises BundleFileError if the language file is not sound.
    """
    read_language(LANGUAGE)
    shutil.copyfile(LANGUAGE, folder / WORDS.language)
    words = replace(manifest.reader or WORDS, language=WORDS.language)
    return write_manifest(folder, replace(manifest, reader=words), [*changed, WORDS.language])
