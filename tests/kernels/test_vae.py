"""pixels and spatial_norm against the VAE decoder's own modules."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from kernel_results import Operators, Outputs, assert_close, case_id
from torch import Tensor
from torch.nn import functional

from animegamer_export.parts.vae import pixels as exported_pixels
from animegamer_kernels import GROUP_WORKSPACE, pixels, spatial_norm
from animegamer_rt.backends.interface import PIXEL_FORMATS
from animegamer_rt.models.vae import NORM_EPSILON, LatentNorm, VaeSize


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_pixels_are_the_exported_decoders(operators: Operators, channels: int, dtype: torch.dtype) -> None:
    formats = [order for order in PIXEL_FORMATS.values() if len(order) == channels]
    for order, flip in product(formats, (False, True)):
        assert_pixels(operators, order, flip, dtype)


def assert_pixels(operators: Operators, order: tuple[int, ...], flip: bool, dtype: torch.dtype) -> None:
    library, device = operators.library, operators.device
    random = torch.Generator().manual_seed(0)
    frames = (1.2 * torch.randn((3, 2, 5, 24), generator=random)).to(dtype)
    frames[:, 0, 0, :4] = torch.tensor([-1.0, 1.0, 0.0, float("inf")])
    expected = exported_pixels(frames.float().transpose(0, 1), torch.tensor(order), torch.tensor([flip]))
    x = frames.permute(1, 2, 3, 0).contiguous()
    outputs = Outputs(device)
    out = outputs.new("out", expected.shape, torch.uint8)
    pixels(library, x.to(device), order, flip, out)
    assert torch.equal(outputs.read()["out"], expected), (order, flip)


@dataclass(frozen=True)
class Case:
    """x [frames, height, width, channels], latent [latent_frames, latent_height, latent_width]."""

    frames: int
    height: int
    width: int
    channels: int
    latent: tuple[int, int, int]
    dtype: torch.dtype = torch.float32
    groups: int = 32
    mean: float = 0.0
    biased: bool = False
    """Whether the norm adds the bias of the preceding convolution."""


CASES = (
    Case(1, 1, 1, 8, (1, 1, 1), torch.bfloat16, groups=2, biased=True),
    Case(1, 2, 3, 4, (1, 2, 3), groups=1),
    Case(3, 2, 6, 512, (3, 2, 3), torch.float16),
    Case(9, 6, 8, 128, (3, 3, 1), torch.bfloat16, biased=True),
    Case(8, 16, 24, 24, (2, 2, 3), groups=3, mean=100.0, biased=True),
    Case(2, 3, 3, 2048, (2, 3, 3), torch.float32),
    Case(9, 24, 36, 128, (3, 3, 18), torch.float16, mean=30.0),
)


def inputs(case: Case) -> tuple[Tensor, ...]:
    """x, scale and shift per latent position, weight and bias, and the bias of x, zeros unless `biased`."""
    random = torch.Generator().manual_seed(case.channels)
    x = torch.randn((case.frames, case.height, case.width, case.channels), generator=random)
    # Every channel has its own mean on top of the common one.
    x += torch.randn(case.channels, generator=random) + case.mean
    maps = torch.randn((2, *case.latent, case.channels), generator=random)
    vectors = torch.randn((3, case.channels), generator=random)
    vectors[2] *= case.biased
    return x.to(case.dtype), *maps.to(case.dtype), *vectors


def run(case: Case, operators: Operators) -> Tensor:
    library, device = operators.library, operators.device
    x, scale, shift, weight, bias, x_bias = (array.to(device) for array in inputs(case))
    outputs = Outputs(device)
    out = outputs.new("out", x.shape, case.dtype)
    added = x_bias if case.biased else None
    workspace = torch.empty(case.groups * GROUP_WORKSPACE, dtype=torch.uint8, device=device)
    spatial_norm(library, x, scale, shift, weight, bias, added, case.groups, NORM_EPSILON, workspace, out)
    return outputs.read()["out"]


class Constant(torch.nn.Module):
    """A projection of the latent with a fixed result."""

    def __init__(self, projected: Tensor) -> None:
        super().__init__()
        self.projected = projected

    def forward(self, latent: Tensor) -> Tensor:
        return self.projected


def truth(case: Case) -> Tensor:
    """The decoder's own LatentNorm in float64, [frames, height, width, channels]."""
    x, scale, shift, weight, bias, x_bias = (array.double() for array in inputs(case))

    def channels_first(array: Tensor) -> Tensor:
        return array.permute(3, 0, 1, 2)[None]

    module = LatentNorm(case.channels, VaeSize(latent_channels=1, norm_groups=case.groups)).double()
    module.norm.weight, module.norm.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
    module.scale, module.shift = Constant(channels_first(scale)), Constant(channels_first(shift))
    with torch.no_grad():
        out = functional.silu(module(channels_first(x + x_bias), torch.zeros(1)))
    return out[0].permute(1, 2, 3, 0)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_norm_is_the_decoders(operators: Operators, case: Case) -> None:
    # A large mean costs precision.
    assert_close("out", run(case, operators), truth(case), roundings=3 + int(case.mean))
