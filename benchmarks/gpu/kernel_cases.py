"""Every kernel on random tensors, beside the plain operators that it replaces. Knows operators and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import MmaKind
from animegamer_rt.backends.torch.kernels import Kernels, Modulation, Normed, RowNorm, has_warpgroups
from animegamer_rt.backends.torch.packed_linear import PackedLinear
from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8, quantize_rows
from animegamer_rt.backends.torch.transformer import gate, modulate, unpatchify
from animegamer_rt.backends.torch.vae import to_uint8
from animegamer_rt.backends.torch.vae_decoder import norm_silu, pointwise
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.denoiser_step import advance
from animegamer_rt.models.vae import LatentNorm, VaeSize

ORDER = (2, 1, 0, 3)
EPSILON = 1e-6
BLOCK = 64
"""Inputs that share a scale, as in a bundle's `int4-qdq`."""
Results = tuple[Tensor, ...]
Run = Callable[..., Results]
Normal = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the cases are run at."""

    denoiser: DenoiserSize
    batch: int
    decoder: VaeSize
    frames: int
    packed: tuple[int, int]


FULL = Sizes(DenoiserSize(1920, 30, 30, 512, 60, 90), 2, VaeSize(), 9, (14336, 4096))
"""Full size. Source: MODEL.md sections 2, 4 and 6; of the predictor one of its MLP's layers."""
SMALL = Sizes(DenoiserSize(128, 1, 2, 16, 4, 8, shot_tokens=5), 2, VaeSize(16, (1, 2), 0, norm_groups=4), 9, (40, 192))


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on some tensors: the kernel, and the plain operators. A kernel may overwrite its inputs."""

    name: str
    label: str
    given: tuple[Tensor, ...]
    kernel: Run
    plain: Run


def drawn(device: str) -> tuple[Normal, str]:
    """A generator of random tensors (bfloat16 on a GPU, float32 on a CPU unless given), and that type's label."""
    usual, label = (torch.bfloat16, "bf16") if device == "cuda" else (torch.float32, "fp32")
    random = torch.Generator(device).manual_seed(0)

    def normal(*shape: int, dtype: torch.dtype = usual) -> Tensor:
        return torch.randn(shape, generator=random, device=device, dtype=dtype)

    return normal, label


def row_cases(kernels: Kernels, sizes: Sizes, device: str) -> Iterator[Case]:
    """LayerNorm + modulate, alone and after gate + residual, in every type that a product takes."""
    normal, label_of_x = drawn(device)
    size, shot_tokens = sizes.denoiser, sizes.denoiser.shot_tokens
    frames, rows, columns = size.patch_grid
    shape = (sizes.batch, shot_tokens + frames * rows * columns, size.hidden)
    x, branch = normal(*shape), normal(*shape)
    types = {label_of_x: x.dtype, "fp8": FP8, "int8": INT8}
    vectors, factors = normal(2, size.hidden, dtype=torch.float32), normal(6, size.hidden, dtype=torch.float32)

    for label, out in types.items():

        def normed(x: Tensor, vectors: Tensor, factors: Tensor, out: torch.dtype = out) -> Results:
            given = RowNorm(vectors[0], vectors[1], EPSILON), Modulation(factors[:2], factors[2:4])
            return whole(kernels.norm_modulate(x, *given, shot_tokens, out))

        def plain(x: Tensor, vectors: Tensor, factors: Tensor, out: torch.dtype = out) -> Results:
            affine, of_x = vectors.to(x.dtype), factors.to(x.dtype)
            y = functional.layer_norm(x, x.shape[2:], affine[0], affine[1], EPSILON)
            y = modulate(y, of_x[:2], of_x[2:4], shot_tokens)
            return (y,) if out == x.dtype else quantize_rows(y.flatten(0, 1), out)

        def gated(x: Tensor, branch: Tensor, vectors: Tensor, factors: Tensor, out: torch.dtype = out) -> Results:
            given = RowNorm(vectors[0], vectors[1], EPSILON), Modulation(factors[:2], factors[2:4])
            gates = factors[4], factors[5]
            return (*whole(kernels.gate_residual(x, branch, gates, *given, shot_tokens, out)), x)

        def plain_gated(x: Tensor, branch: Tensor, vectors: Tensor, factors: Tensor, plain: Run = plain) -> Results:
            of_x = factors.to(x.dtype)
            x = gate(x, branch, of_x[4], of_x[5], shot_tokens)
            return (*plain(x, vectors, factors), x)

        yield Case(f"norm_modulate to {label}", label, (x, vectors, factors), normed, plain)
        yield Case(f"gate_residual to {label}", label, (x, branch, vectors, factors), gated, plain_gated)


def product_cases(kernels: Kernels, sizes: Sizes, device: str) -> Iterator[Case]:
    """What follows a product: GELU and roundings, INT8's sums as numbers; and GELU inside a product of 16 bits."""
    normal, label = drawn(device)
    size = sizes.denoiser
    frames, rows, columns = size.patch_grid
    tokens, width = (sizes.batch, size.shot_tokens + frames * rows * columns), size.hidden
    x, scales = normal(*tokens, 4 * width), normal(*tokens, dtype=torch.float32).abs() / 1e4
    gelu = partial(functional.gelu, approximate="tanh")

    for name, out in (("fp8", FP8), ("int8", INT8)):
        yield Case(
            f"epilogue to {name}",
            name,
            (x,),
            lambda x, out=out: whole(kernels.epilogue(x, out, gelu=True)),
            lambda x, out=out: quantize_rows(gelu(x).flatten(0, 1), out),
        )

    def sums(width: int) -> tuple[Tensor, ...]:
        drawn_sums = (1e4 * normal(*tokens, width, dtype=torch.float32)).to(torch.int32)
        return drawn_sums, scales, normal(2, width, dtype=torch.float32)

    def numbers(sums: Tensor, scales: Tensor, vectors: Tensor) -> Tensor:
        # As `rowwise` makes them.
        return sums.float().mul_(scales[..., None]).mul_(vectors[0]).add_(vectors[1]).to(x.dtype)

    def dequantize_sums(sums: Tensor, scales: Tensor, vectors: Tensor, out: torch.dtype) -> Results:
        return whole(kernels.epilogue_of_sums(sums, (scales, vectors[0], vectors[1]), out, gelu=out == INT8))

    yield Case(
        "epilogue of sums to int8",
        "int8",
        sums(4 * width),
        partial(dequantize_sums, out=INT8),
        lambda *given: quantize_rows(gelu(numbers(*given)).flatten(0, 1), INT8),
    )
    yield Case(
        f"epilogue of sums to {label}",
        label,
        sums(3 * width),
        partial(dequantize_sums, out=x.dtype),
        lambda *given: (numbers(*given),),
    )
    if device == "cuda":
        yield Case(
            "GELU inside a product",
            label,
            (normal(math.prod(tokens), width), normal(4 * width, width) / width**0.5, normal(4 * width)),
            lambda rows, weight, bias: (torch._addmm_activation(bias, rows, weight.t(), use_gelu=True),),
            lambda rows, weight, bias: (gelu(functional.linear(rows, weight, bias)),),
        )


def step_cases(kernels: Kernels, sizes: Sizes, device: str) -> Iterator[Case]:
    """The norms of queries and keys; unpatchify, guidance and solver."""
    normal, label = drawn(device)
    size = sizes.denoiser
    frames, rows, columns = size.patch_grid
    patches, width = frames * rows * columns, size.hidden // size.heads

    def head_norm(qkv: Tensor, vectors: Tensor) -> Results:
        kernels.head_norm(qkv, RowNorm(vectors[0], vectors[1], EPSILON), RowNorm(vectors[2], vectors[3], EPSILON))
        return qkv[:, :, 0], qkv[:, :, 1]

    def plain_heads(qkv: Tensor, vectors: Tensor) -> Results:
        affine = vectors.to(qkv.dtype)
        query, key, _ = qkv.unbind(2)
        return (
            functional.layer_norm(query, (width,), affine[0], affine[1], EPSILON),
            functional.layer_norm(key, (width,), affine[2], affine[3], EPSILON),
        )

    qkv = normal(sizes.batch, size.shot_tokens + patches, 3, size.heads, width)
    yield Case("head_norm", label, (qkv, normal(4, width, dtype=torch.float32)), head_norm, plain_heads)
    del qkv

    def step(features: Tensor, latents: Tensor, coefficients: Tensor) -> Results:
        *state, drawn = latents.unbind(0)
        kernels.guided_step(features, state, drawn, coefficients)
        return tuple(state)

    def plain_step(features: Tensor, latents: Tensor, coefficients: Tensor) -> Results:
        latent, x0_prev, difference, drawn = latents.unbind(0)
        v = unpatchify(features, size)
        return advance(v, latent, x0_prev, drawn, difference, coefficients.unbind(0))

    shape = (4, 1, size.latent_frames, size.latent_channels, size.latent_height, size.latent_width)
    features = normal(sizes.batch, patches, size.latent_channels * size.patch**2)
    given = features, normal(*shape, dtype=torch.float32), 0.4 * normal(8, dtype=torch.float32)
    yield Case("guided_step", label, given, step, plain_step)


def attention_cases(kernels: Kernels, sizes: Sizes, device: str) -> Iterator[Case]:
    """Norms and our attention, in bfloat16 everywhere, against PyTorch's of what was never rounded to INT8."""
    normal, _ = drawn(device)
    size = sizes.denoiser
    frames, rows, columns = size.patch_grid
    width = size.hidden // size.heads
    shape = (sizes.batch, size.shot_tokens + frames * rows * columns, 3, size.heads, width)
    vectors = normal(4, width, dtype=torch.float32)
    vectors[::2] = 1 + 0.3 * vectors[::2]  # weights of a norm: larger ones make every answer a single value

    def norms(vectors: Tensor) -> tuple[RowNorm, RowNorm]:
        return RowNorm(vectors[0], vectors[1], EPSILON), RowNorm(vectors[2], vectors[3], EPSILON)

    def ours(qkv: Tensor, vectors: Tensor, mma: MmaKind | None = None) -> Results:
        return (kernels.attention_int8(qkv, *norms(vectors), mma),)

    def halves(qkv: Tensor, vectors: Tensor) -> Results:
        normed = qkv.clone()  # what it is timed with is not normalised twice
        kernels.head_norm(normed, *norms(vectors))
        return (kernels.attention(normed),)

    def plain(qkv: Tensor, vectors: Tensor) -> Results:
        affine = vectors.to(qkv.dtype)
        query, key, value = qkv.unbind(2)
        query = functional.layer_norm(query, (width,), affine[0], affine[1], EPSILON)
        key = functional.layer_norm(key, (width,), affine[2], affine[3], EPSILON)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        return (functional.scaled_dot_product_attention(query, key, value).transpose(1, 2),)

    given = normal(*shape, dtype=torch.bfloat16), vectors
    yield Case("attention_int8", "int8 scores", given, ours, plain)
    if has_warpgroups(vectors.device):
        # Their reference, on the CPU, is the same.
        yield Case("attention_int8 wgmma", "int8 scores", given, partial(ours, mma=MmaKind.WARPGROUPS), plain)
        yield Case("attention", "bf16", given, halves, plain)


def vae_cases(kernels: Kernels, sizes: Sizes, device: str) -> Iterator[Case]:
    """A spatial norm with its SiLU at the largest size of the decoder; frames to bytes."""
    normal, label = drawn(device)
    decoder, size = sizes.decoder, sizes.denoiser
    scale, channels = decoder.upscale, decoder.widths[0]
    picture = (sizes.frames, scale * size.latent_height, scale * size.latent_width)
    latent = normal(3, size.latent_height, size.latent_width, decoder.latent_channels)
    layer = LatentNorm(channels, decoder).to(latent.device, latent.dtype).requires_grad_(False)

    def spatial_norm(x: Tensor, latent: Tensor, bias: Tensor) -> Results:
        layer.to(x.device)
        given = pointwise(layer.scale, latent), pointwise(layer.shift, latent)
        return (kernels.spatial_norm(x, *given, layer.norm, bias=bias),)

    yield Case(
        "spatial_norm",
        label,
        (normal(*picture, channels), latent, normal(channels, dtype=torch.float32)),
        spatial_norm,
        lambda x, latent, bias: (norm_silu(layer, x + bias.to(x.dtype), latent),),
    )
    yield Case(
        "pixels",
        "bytes",
        (normal(*picture, 3),),
        lambda rgb: (kernels.pixels(rgb, ORDER, True),),
        lambda rgb: (to_uint8(rgb, ORDER, True).contiguous(),),
    )


def packed_cases(kernels: Kernels, sizes: Sizes, device: str) -> Iterator[Case]:
    """A weight in 4 bits made whole, and multiplied as it lies by the three tokens after a prompt."""
    normal, label = drawn(device)
    outputs, inputs = sizes.packed
    scales = 0.01 * normal(outputs, inputs // BLOCK, 1, dtype=torch.float32).abs()
    codes = torch.randint(-128, 128, (*scales.shape[:2], BLOCK // 2), dtype=torch.int8, device=scales.device)
    x = normal(3, inputs)

    def layer(codes: Tensor, scales: Tensor, by: Kernels | None) -> PackedLinear:
        packed = PackedLinear(codes, scales)
        packed.four_bits, packed.kernels = True, by
        return packed

    yield Case(
        "unpack",
        label,
        (codes, scales),
        lambda codes, scales: (layer(codes, scales, kernels).weight(x.dtype),),
        lambda codes, scales: (layer(codes, scales, None).weight(x.dtype),),
    )
    yield Case(
        "packed_product",
        label,
        (codes, scales, x),
        lambda codes, scales, x: (layer(codes, scales, kernels)(x),),
        lambda codes, scales, x: (layer(codes, scales, None)(x),),
    )


FAMILIES: Mapping[str, Callable[[Kernels, Sizes, str], Iterator[Case]]] = {
    "rows": row_cases,
    "products": product_cases,
    "step": step_cases,
    "vae": vae_cases,
    "packed": packed_cases,
    "attention": attention_cases,
}
"""All operators that the backend calls, on random tensors; each family is checked and timed in a process of its own."""


def whole(normed: Normed) -> Results:
    """Rows, or codes and scales as by_row has them."""
    return (normed.rows,) if normed.scales is None else (normed.rows.flatten(0, 1), normed.scales.view(-1, 1))
