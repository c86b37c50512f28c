"""The judge's network in PyTorch, and its export to ONNX. `reading.py` runs the exported file.

Each of 36 columns of the picture predicts how likely a character stands there, its outfit, and how far from there it
starts and ends. One small network, shared by all five characters, reads a character's count off its row of columns.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from animegamer_export.onnx_io.write import strip_metadata
from animegamer_pocket.world.scene import CHARACTERS, HEIGHT, MOTIONS, OUTFITS, PLACES, WIDTH

from .reading import OUTPUTS, SEEN_FRAMES

LEVELS, COUNTS = 5, 3
_FINE, _MIDDLE, _COARSE = 32, 64, 128
_COLUMN = 128
_COUNT_CHANNELS = 24
_WHOLE = (len(PLACES), 1, len(MOTIONS), LEVELS)
_PER_CHARACTER = 1 + len(OUTFITS) + 2


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels), nn.Conv2d(channels, channels, 3, padding=1))
        self.norm = nn.GroupNorm(8, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(x + self.body(x)))


def _conv(channels: int, width: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels, width, 3, stride=stride, padding=1)
    return nn.Sequential(convolution, nn.GroupNorm(8, width), nn.SiLU())


class Network(nn.Module):
    """float [B, 27, 48, 72], -1..1 -> the logits of `OUTPUTS`, in order.

    counts [B, 5, 3]; where [B, 5, 36]; outfits [B, 5, 3, 36]; offsets [B, 5, 2, 36], in picture widths from the
    column's centre; smeared [B, 1]; place [B, 8]; night [B, 1]; motion [B, 9]; level [B, 5].
    """

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(_conv(3 * len(SEEN_FRAMES), _FINE, 2), _conv(_FINE, _FINE))
        self.middle = nn.Sequential(_conv(_FINE, _MIDDLE, 2), _Residual(_MIDDLE))
        self.coarse = nn.Sequential(_conv(_MIDDLE, _COARSE, 2), _Residual(_COARSE))
        self.context = nn.Conv2d(_COARSE, _MIDDLE, 1)
        self.refine = _conv(_MIDDLE, _MIDDLE)
        self.column = nn.Conv2d(_MIDDLE, _COLUMN, (HEIGHT // 8, 1))
        self.split = nn.ConvTranspose1d(_COLUMN, _COLUMN, 2, stride=2)
        self.figures = nn.Conv1d(_COLUMN, len(CHARACTERS) * _PER_CHARACTER, 1)
        self.count = nn.Sequential(
            nn.Conv1d(1, _COUNT_CHANNELS, 5, padding=2),
            nn.SiLU(),
            nn.Conv1d(_COUNT_CHANNELS, _COUNT_CHANNELS, 5, padding=2),
            nn.SiLU(),
        )
        self.count_out = nn.Linear(2 * _COUNT_CHANNELS, COUNTS)
        self.smear = nn.Conv2d(_MIDDLE, 32, 1)
        self.smear_out = nn.Linear(64, 1)
        self.whole = nn.Conv2d(_COARSE, 48, 1)
        self.hidden = nn.Linear(48 * (HEIGHT // 16) * (WIDTH // 16), 192)
        self.out = nn.Linear(192, sum(_WHOLE))

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(weight.numel() for weight in self.parameters())

    def forward(self, clips: Tensor) -> tuple[Tensor, ...]:
        middle = self.middle(self.fine(clips))
        coarse = self.coarse(middle)
        seen = self.refine(middle + F.interpolate(self.context(coarse), scale_factor=2.0, mode="nearest"))
        columns = self.split(F.silu(self.column(seen).squeeze(2)))
        groups = self.figures(F.silu(columns)).float().unflatten(1, (len(CHARACTERS), _PER_CHARACTER))
        where, outfits, offsets = groups.split((1, len(OUTFITS), 2), dim=2)
        rows = where.flatten(0, 1)  # [B * 5, 1, 36]: shared by the characters
        counted = self.count(rows)
        counts = self.count_out(torch.cat([counted.sum(2) / 8, counted.amax(2)], dim=1).float())
        spots = F.silu(self.smear(seen))
        smeared = self.smear_out(torch.cat([spots.mean((2, 3)), spots.amax((2, 3))], dim=1))
        whole = self.out(F.silu(self.hidden(F.silu(self.whole(coarse)).flatten(1)))).float().split(_WHOLE, dim=1)
        return counts.unflatten(0, (-1, len(CHARACTERS))), where.squeeze(2), outfits, offsets, smeared.float(), *whole


def export(network: Network, path: Path) -> None:
    """Writes the network as ONNX with float16 weights; it computes in float32 with a dynamic batch."""
    network.eval()
    example = torch.zeros(2, 3 * len(SEEN_FRAMES), HEIGHT // 2, WIDTH // 2)
    with warnings.catch_warnings():
        # Deprecation warnings inside torch itself (torch 2.13).
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        program = torch.onnx.export(
            network,
            (example,),
            input_names=["clips"],
            output_names=list(OUTPUTS),
            dynamic_shapes=({0: torch.export.Dim("clips_count")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    strip_metadata(program.model)
    model = program.model_proto
    for weight in list(model.graph.initializer):
        if weight.data_type == onnx.TensorProto.FLOAT and len(weight.dims) >= 2:
            _keep_as_float16(model, weight)
    onnx.checker.check_model(model)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(model.SerializeToString())
    unfinished.replace(path)


def _keep_as_float16(model: onnx.ModelProto, weight: onnx.TensorProto) -> None:
    """Replaces a float32 weight by a float16 one and a Cast, which onnxruntime folds at load."""
    name = weight.name
    small = numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), f"{name}_float16")
    model.graph.initializer.remove(weight)
    model.graph.initializer.append(small)
    model.graph.node.insert(0, onnx.helper.make_node("Cast", [small.name], [name], to=onnx.TensorProto.FLOAT))
