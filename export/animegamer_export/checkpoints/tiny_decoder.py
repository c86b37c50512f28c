"""Reads a published decoder of TAEHV's shape, such as taecvx, as a `models.tiny_decoder.TinyDecoder`.

Source: github.com/madebyollin/taehv (MIT), commit 1f14a568. There, the decoder is a list of layers, and its names are
their numbers: 1 is the first convolution, 22 the last, and stage n has its blocks at 3 + 6n to 5 + 6n, the 1x1
convolution that makes new frames at 7 + 6n, and the one after the upsampling at 8 + 6n.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from animegamer_rt.models.tiny_decoder import COLOURS, TinyDecoder, TinyDecoderSize

from .files import Shape, TensorFile, open_safetensors, open_torch
from .key_names import KeyNaming
from .weight_map import make_weight_map

FIRST, LAST = "decoder.1", "decoder.22"
BLOCK_LAYERS = {"a": "conv.0", "b": "conv.2", "c": "conv.4"}
NAMING = KeyNaming(
    ours=((r"(.*)", r"\1"),), unused=((r"encoder\..*", "the decoder's own encoder is not needed to play"),)
)


def is_tiny_decoder(path: Path) -> bool:
    """Whether the file has the names of such a decoder. Raises CheckpointError for a file that holds no tensors."""
    return f"{FIRST}.weight" in _open(path).shapes


def read_tiny_decoder(path: Path, scale: float) -> TinyDecoder:
    """The decoder in a .safetensors or .pth file, for latents of this scale.

    Raises CheckpointError for a file that does not hold one; no code in it is run.
    """
    file = _open(path)
    size = _size(file, scale)
    wanted = _published_shapes(size)
    map_ = make_weight_map(file, wanted, NAMING, what="decoder (TAEHV's, as taecvx)")
    weights = {name: map_.merged(name, torch.float32) for name in wanted}
    decoder = TinyDecoder(size).eval()
    decoder.load_state_dict(_converted(weights, size))
    return decoder


def _open(path: Path) -> TensorFile:
    return open_safetensors(path) if path.suffix == ".safetensors" else open_torch(path)


def _size(file: TensorFile, scale: float) -> TinyDecoderSize:
    """Sizes from the shapes. Of a missing one the usual size is taken: `make_weight_map` reports what is missing."""
    usual = TinyDecoderSize()

    def rows(layer: str, otherwise: int) -> int:
        return (*file.shapes.get(f"{layer}.weight", ()), otherwise)[0]

    stages = range(len(usual.doubles_time))
    first = rows(FIRST, usual.channels[0])
    channels = (first, *(rows(f"decoder.{8 + 6 * stage}", usual.channels[stage + 1]) for stage in stages))
    doubles = tuple(rows(f"decoder.{7 + 6 * stage}.conv", channels[stage]) > channels[stage] for stage in stages)
    return TinyDecoderSize(channels, doubles_time=doubles, scale=scale)


def _published_shapes(size: TinyDecoderSize) -> dict[str, Shape]:
    def convolution(layer: str, inputs: int, outputs: int) -> dict[str, Shape]:
        return {f"{layer}.weight": (outputs, inputs, 3, 3), f"{layer}.bias": (outputs,)}

    wanted = convolution(FIRST, size.latent_channels, size.channels[0])
    for stage, (doubles, wide, new) in enumerate(
        zip(size.doubles_time, size.channels[:-1], size.channels[1:], strict=True)
    ):
        for block in range(size.blocks):
            for layer, inputs in zip(BLOCK_LAYERS.values(), (2 * wide, wide, wide), strict=True):
                wanted |= convolution(f"decoder.{3 + 6 * stage + block}.{layer}", inputs, wide)
        wanted[f"decoder.{7 + 6 * stage}.conv.weight"] = ((1 + doubles) * wide, wide, 1, 1)
        wanted[f"decoder.{8 + 6 * stage}.weight"] = (new, wide, 3, 3)
    return wanted | convolution(LAST, size.channels[-1], COLOURS)


def _converted(weights: dict[str, Tensor], size: TinyDecoderSize) -> dict[str, Tensor]:
    """The state dict of `models.tiny_decoder.TinyDecoder`."""
    phases = _phases()
    nearest = phases.sum(1)
    state = {f"conv_in.{kind}": weights[f"{FIRST}.{kind}"] for kind in ("weight", "bias")}
    for stage in range(len(size.doubles_time)):
        for block in range(size.blocks):
            for ours, theirs in BLOCK_LAYERS.items():
                for kind in ("weight", "bias"):
                    name = f"stages.{stage}.{block}.{ours}.{kind}"
                    state[name] = weights[f"decoder.{3 + 6 * stage + block}.{theirs}.{kind}"]
        new = weights[f"decoder.{8 + 6 * stage}.weight"]
        grow = weights[f"decoder.{7 + 6 * stage}.conv.weight"].reshape(-1, new.shape[1], new.shape[1])
        whole = torch.einsum("odkj,fdc,plk,rmj->foprclm", new, grow, nearest, nearest)
        for frame, weight in enumerate(whole):
            state[f"upsamples.{stage}.{frame}.weight"] = weight.reshape(-1, new.shape[1], 3, 3)
    last, bias = weights[f"{LAST}.weight"], weights[f"{LAST}.bias"]
    whole = torch.einsum("ockj,pqlk,rsmj->oprcqslm", last, phases, phases)
    # The published decoder gives 0..1.
    state["conv_out.weight"] = 2 * whole.reshape(4 * len(last), -1, 3, 3)
    state["conv_out.bias"] = 2 * bias.repeat_interleave(4) - 1
    return state


def _phases() -> Tensor:
    """[2, 2, 3, 3]: 1 where an odd or even new pixel reads, by a tap, an odd or even one of a low-resolution pixel.

    Axes: the new pixel, the one it reads, that one's low-resolution pixel (before, same, after), the tap.
    """
    found = torch.zeros(2, 2, 3, 3)
    for new in range(2):
        for tap in range(3):
            low, read = divmod(new + tap - 1, 2)
            found[new, read, low + 1, tap] = 1
    return found
