"""Finds the checkpoints of a release in a folder, without opening them; one error lists all that are missing.

The layout is that of the reference's instructions; docs/EXPORT.md shows it.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from animegamer_export.checkpoints.folders import (
    DENOISER_FILE,
    WEIGHTS,
    in_place_of_weights,
    published_weights,
    read_text,
    read_with_shards,
    require_readable,
    trained_weights,
)
from animegamer_rt.errors import CheckpointError

TREE = """\
checkpoints/
|-- Mistral-7B-Instruct-v0.1/            the language model's own folder
|   |-- config.json
|   |-- tokenizer.model
|   `-- model.safetensors                or pytorch_model.bin, or shards with their index.json
|-- AnimeGamer/                          the release; Qiqi is one of its characters
|   |-- MLLM-Qiqi/
|   |   `-- pytorch_model.bin            or a trainer's: model.safetensors, shards, PEFT's adapter
|   `-- VDM_Decoder-Qiqi/
|       `-- 1/                           any name; the file `latest` may say which
|           `-- mp_rank_00_model_states.pt     or a trainer's
|-- CogVideoX-2b/                        or CogVideoX-2b-sat/vae/3d-vae.pt, SAT's file of the same weights
|   `-- vae/
|       |-- config.json
|       `-- diffusion_pytorch_model.safetensors
|-- t5-v1_1-xxl/                         this and the next: only to start games from a picture
|   |-- config.json
|   |-- spiece.model
|   `-- pytorch_model.bin                or model.safetensors, or shards with their index.json
`-- CLIP-ViT-B-16-laion2B-s34B-b88K/
    |-- open_clip_config.json
    `-- open_clip_pytorch_model.bin      or open_clip_model.safetensors
"""

MISTRAL = ("Mistral-7B-Instruct-v0.1",)
ADAPTER = ("AnimeGamer/MLLM-{release}", "AnimeGamer/{release}/MLLM", "Game-{release}/MLLM")
ADAPTER_FILE = "pytorch_model.bin"
"""The release's file; a trainer's folder may hold any of `trained_weights`."""
DENOISER = (
    "AnimeGamer/VDM_Decoder-{release}",
    "AnimeGamer/{release}/VDM_Decoder",
    "Game-{release}/VDM_Decoder-{release}",
)
VAE = ("CogVideoX-2b-sat/vae/3d-vae.pt", "vae/3d-vae.pt", "CogVideoX-2b/vae/diffusion_pytorch_model.safetensors")
"""Paths in order of preference. `animegamer-rt fetch` writes the first of each, and diffusers' vae."""

TOWERS = ("t5-v1_1-xxl", "CLIP-ViT-B-16-laion2B-s34B-b88K")
"""google/t5-v1_1-xxl and laion's open_clip CLIP, each in a folder of that name."""


@dataclass(frozen=True, slots=True)
class Release:
    """Paths of one release's checkpoints; adapter and denoiser are folders of what training wrote.

    passed_over: places that could also have been read, and the one that is.
    """

    mistral: Path
    adapter: Path
    denoiser: Path
    vae: Path
    passed_over: Mapping[Path, Path]

    @property
    def tokenizer(self) -> Path:
        """The language model's sentencepiece file."""
        return self.mistral / "tokenizer.model"

    def files(self) -> dict[str, list[Path]]:
        """The files of each part and of the tokenizer."""
        predictor = [*published_weights(self.mistral), *_with_settings(self.adapter)]
        denoiser = read_with_shards(_with_settings(self.denoiser))
        return {
            "predictor": [self.mistral / "config.json", *read_with_shards(predictor)],
            "denoiser": denoiser,
            "encoder": denoiser,
            "vae": [self.vae, *sorted(self.vae.parent.glob("config.json"))],
            "tokenizer": [self.tokenizer],
        }


def find_release(folder: Path, release: str) -> Release:
    """Finds a release's checkpoints in `folder`. Raises one CheckpointError that lists everything missing."""
    if not folder.is_dir():
        raise CheckpointError("no such folder", where=folder, do="pass the one that holds " + MISTRAL[0])
    missing: list[str] = []
    mistral = folder / MISTRAL[0]
    for one in (folder, mistral, *map(folder.joinpath, TOWERS)):
        require_readable(one)
    missing += [f"{MISTRAL[0]}/{name}" for name in ("config.json", "tokenizer.model") if not (mistral / name).is_file()]
    if not any((mistral / name).is_file() for name in WEIGHTS):
        missing.append(f"{MISTRAL[0]}/ " + " or ".join(WEIGHTS) + in_place_of_weights(mistral))
    adapters, denoisers, vaes = (
        [folder / name.format(release=release) for name in one] for one in (ADAPTER, DENOISER, VAE)
    )
    adapter = next(filter(trained_weights, adapters), None)
    vae = next(filter(Path.is_file, vaes), None)
    if adapter is None:
        missing.append(_lacking(folder, adapters, f"/{ADAPTER_FILE}"))
    if vae is None:
        missing.append(_lacking(folder, vaes))
    denoiser = _denoiser(folder, denoisers, missing)
    if missing or adapter is None or vae is None:
        known = _known_releases(folder)
        do = "run animegamer-rt fetch, or arrange the folders like this (links work):\n" + TREE
        if known and release not in known:
            do = f"or select the character with --release ({', '.join(known)}); " + do
        raise CheckpointError("incomplete checkpoints", where=folder, missing=missing, do=do)
    passed_over: dict[Path, Path] = {}
    for places, found in ((adapters, adapter), (denoisers, denoiser), (vaes, vae)):
        used = {os.path.realpath(one) for one in (found, *found.parents)}
        passed_over |= {place: found for place in places if place.exists() and os.path.realpath(place) not in used}
    return Release(mistral, adapter, denoiser, vae, passed_over)


def missing_towers(folder: Path) -> list[str]:
    """The missing tower folders. A bundle without towers plays but cannot start a game from a picture."""
    return [f"{name}/" for name in TOWERS if not (folder / name).is_dir()]


def _lacking(folder: Path, places: Sequence[Path], file: str = "") -> str:
    """Words about places that lack their weights: a file in each, or themselves files."""
    names = " or ".join(f"{place.relative_to(folder).as_posix()}{file}" for place in places)
    there = "".join(in_place_of_weights(place if file else place.parent) for place in places)
    return names + (there or "".join(_spelled_otherwise(place) for place in places))


def _spelled_otherwise(place: Path) -> str:
    """Words about what has the place's name but for capitals or the form of its accents, or nothing."""
    if place.exists() or not place.parent.is_dir():
        return ""
    wanted = unicodedata.normalize("NFC", place.name).casefold()
    for name in sorted(one.name for one in place.parent.iterdir()):
        if unicodedata.normalize("NFC", name).casefold() == wanted:
            what = "a link that leads nowhere" if name == place.name else "spelled otherwise; rename it"
            return f" (found {name!a}: {what})"
    return ""


def _denoiser(folder: Path, places: Sequence[Path], missing: list[str]) -> Path:
    """The denoiser's folder: the step that `latest` names, else the only one that has weights, or the place itself."""
    for place in places:
        steps = [step for step in sorted(place.glob("*/")) if trained_weights(step)]
        found = ", ".join(step.name for step in steps) or "none"
        if place / "latest" in steps:  # a link to the step
            return place / "latest"
        if (place / "latest").is_file():
            named = read_text(place / "latest").strip()
            if place / named in steps:
                return place / named
            where = f"{place.relative_to(folder)}/{named}/{DENOISER_FILE}"
            there = f"steps with weights: {found}" + ("" if steps else in_place_of_weights(place / named))
            missing.append(f"{where}, which its file latest names ({there})")
            return place
        if trained_weights(place):
            return place
        if len(steps) == 1:
            return steps[0]
        if steps:
            missing.append(f"{place.relative_to(folder)}/latest, which selects one of {found}")
            return steps[0]
    missing.append(_lacking(folder, places, f"/*/{DENOISER_FILE}"))
    return places[0]


def _with_settings(folder: Path) -> list[Path]:
    """A trainer's weights and the files that say how to read them."""
    settings = (folder / name for name in ("config.json", "adapter_config.json"))
    return [*trained_weights(folder), *(path for path in settings if path.is_file())]


def _known_releases(folder: Path) -> list[str]:
    names = [path.name.partition("-")[2] for path in folder.glob("AnimeGamer/VDM_Decoder-*")]
    return sorted(names + [path.name.partition("-")[2] for path in folder.glob("Game-*")])
