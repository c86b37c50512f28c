"""Parity of the vae decoder: in chunks with caches, in one call, and of inner activations."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from animegamer_export.checkpoints.files import open_tensors
from animegamer_export.checkpoints.releases import vae_weight_map
from animegamer_export.parity.checks import VAE, Check, compare, count_differences
from animegamer_export.parity.fixtures import FixtureFolder, FixtureSet, vae_weights
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.vae import Stage, VaeDecoder, VaeSize


def decoder(folder: FixtureFolder, fixture: FixtureSet) -> VaeDecoder:
    """The decoder with the weights of a vae set."""
    config = fixture.config
    size = VaeSize(
        channels=config["ch"],
        multipliers=tuple(config["mult"]),
        res_blocks=config["nres"],
        latent_channels=config["z_channels"],
        norm_groups=config["norm_groups"],
    )
    with torch.device("meta"):
        network = VaeDecoder(size)
    weight_map = vae_weight_map(open_tensors(vae_weights(folder, fixture), fixture.where), network)
    return with_weights(network, weight_map, dtype=folder.dtype)


def _chunks(fixture: FixtureSet) -> list[Tensor]:
    latent = fixture.tensors["latent"]
    return [latent[:, :, start:end] for start, end in fixture.description["chunks"]]


def check_decode(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """The whole clip, chunk by chunk with caches."""
    network = decoder(folder, fixture)
    caches: list[Tensor] | None = None
    frames = []
    for chunk in _chunks(fixture):
        decoded, caches = network(chunk, caches)
        frames.append(decoded)
    counts = [part.shape[2] for part in frames]
    return [
        compare("frames", torch.cat(frames, dim=2), fixture.tensors["output"], VAE),
        count_differences("frames of each chunk", counts, fixture.description["frames_per_chunk"]),
    ]


def check_whole(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """The same latent in one call, which gives a different result."""
    parent = folder.named(fixture.name.replace("vae_whole", "vae_decode"), fixture)
    frames, _ = decoder(folder, parent)(parent.tensors["latent"], None)
    return [compare("frames in one call", frames, fixture.tensors["whole"], VAE)]


def check_inner(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """Inner activations of every chunk of the decode set with the same suffix."""
    parent = folder.named(fixture.name.replace("vae_inter", "vae_decode"), fixture)
    network = decoder(folder, parent)
    recorded: dict[str, Tensor] = {}
    chunk_number = 0

    def record(name: str, module: nn.Module) -> None:
        def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            recorded[f"{name}_chunk{chunk_number}"] = output

        module.register_forward_hook(keep)

    record("conv_in", network.conv_in)
    record("mid", network.middle[-1])
    for stage, module in enumerate(network.stages):
        if isinstance(module, Stage) and module.upsample is not None:
            record(f"up{len(network.stages) - 1 - stage}_upsample", module.upsample)
    caches: list[Tensor] | None = None
    for number, chunk in enumerate(_chunks(parent)):
        chunk_number = number
        _, caches = network(chunk, caches)
    unknown = sorted(key for key in fixture.tensors if key not in recorded)
    if unknown:
        places = sorted({re.sub(r"_chunk\d+$", "", key) for key in recorded})
        raise CheckpointError(f"unknown activations (known: {', '.join(places)})", where=fixture.where)
    return [compare(key, recorded[key], value, VAE) for key, value in fixture.tensors.items()]
