"""Writes the pocket bundle: exports every network into one folder, then writes the manifest."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from animegamer_export.build.default_plans import COMPATIBILITY, WINDOW_TOKENS, default_plans, plan_entries
from animegamer_export.build.sizes import ModelSizes
from animegamer_export.onnx_io.write import ExportResult
from animegamer_export.parts.denoiser import export_denoiser
from animegamer_export.parts.encoder import export_encoder, export_image_tower, export_text_tower
from animegamer_export.parts.predictor import export_predictor
from animegamer_export.parts.vae import export_vae
from animegamer_pocket.towers import TEXT_TOKENS, ImageTower, TextTower
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.manifest import Geometry, Manifest, Part, World
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import BundleError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder

from .world.scene import ADVERBS, CHARACTERS, MOTIONS, PLACES

NAME = "pocket"
DESCRIPTION = "a small procedural cartoon world of our own, 96 x 144, with the architecture of the full size"
LICENCE = "Apache-2.0"
TOKENIZER_FILES = ("tokenizer.model", "added_tokens.json")
MAX_BYTES = 32_000_000

WORLD = World(
    characters=CHARACTERS,
    motions=MOTIONS,
    adverbs=ADVERBS,
    places=PLACES,
    examples=(
        "Character: Mirel; Motion: quickly run; Background: day beach.",
        "Mirel waves gently.",
        "Mirel and Tofi dance smoothly.",
        "Bixo jumps quickly in the city at night.",
        "Character: Zelki in party clothes; Motion: smoothly fly; Background: day cloudland.",
    ),
)


@dataclass(frozen=True, slots=True)
class Networks:
    """The trained networks of one bundle. The decoder's size holds the measured latent scale."""

    predictor: Predictor
    denoiser: Denoiser
    encoder: Encoder
    decoder: VaeDecoder
    text_tower: TextTower
    image_tower: ImageTower


def write_bundle(
    folder: Path,
    networks: Networks,
    tokenizer: Path,
    *,
    plans: Mapping[str, DenoisePlan] | None = None,
    provenance: Mapping[str, Any] | None = None,
    origin: str = "trained",
) -> Bundle:
    """Exports all parts, compares each with its network, then writes the manifest. Prints the errors.

    folder: replaced. tokenizer: the folder with tokenizer.model and added_tokens.json. Raises BundleError
    if a part disagrees with its network, or if the bundle is over 32 MB.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, folder / name)
    sizes = ModelSizes(networks.predictor.size, networks.denoiser.size, networks.encoder.size, networks.decoder.size)
    geometry = sizes.geometry(WINDOW_TOKENS)
    manifest = Manifest(
        format="",
        format_version=0,
        name=NAME,
        description=DESCRIPTION,
        origin=origin,
        geometry=geometry,
        parts=_export_parts(folder, networks, geometry),
        plans=plan_entries(plans or default_plans()),
        files={},
        compatibility=COMPATIBILITY,
        sizes=sizes.record(),
        world=WORLD,
        provenance=provenance or {},
        licence=LICENCE,
    )
    bundle = write_manifest(folder, manifest)
    found = sum(path.stat().st_size for path in folder.iterdir())
    if found > MAX_BYTES:
        raise BundleError(
            "the bundle is too large to ship", where=folder, found=f"{found} bytes", expected=f"at most {MAX_BYTES}"
        )
    return bundle


def update_bundle(folder: Path, quality: Mapping[str, Any]) -> Bundle:
    """Replaces a bundle's quality figures only."""
    return write_manifest(folder, replace(load(folder).manifest, quality=quality), changed=())


def _export_parts(folder: Path, networks: Networks, geometry: Geometry) -> dict[str, Part]:
    unconditional = networks.encoder.unconditional().detach()
    written: list[ExportResult] = [
        export_predictor(networks.predictor, folder),
        export_denoiser(networks.denoiser, unconditional, folder, attention="onnxruntime", int8=True),
        export_vae(networks.decoder, folder, geometry.latent_height, geometry.latent_width),
        export_encoder(networks.encoder, folder),
        export_text_tower(networks.text_tower, folder, TEXT_TOKENS),
        export_image_tower(networks.image_tower, folder, geometry.height, geometry.width),
    ]
    print("\n".join(one.report() for one in written), flush=True)
    return {name: part for one in written for name, part in one.parts.items()}
