"""The denoiser's network with the project's kernels between its products; else `transformer`'s, weight for weight.

A block is four products, attention, and kernels between them, which write what a product takes in the type that it
takes (FP8 and INT8 with their scales). Inside a kernel everything is float32, so it is near `transformer`, not equal.
Source: MODEL.md section 4; docs/KERNELS.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from animegamer_rt.models.denoiser import MODULATIONS_A_BLOCK, Block, Denoiser

from .attention import Attention, run_attention
from .custom_ops import PLAIN, Kernels, Modulation, Normed, RowNorm
from .rowwise_linear import INT8, RowwiseLinear
from .transformer import IMAGE, SHOT, BlockCacheBuffer, Transformer

INSIDE_FROM, INSIDE_BELOW = (9, 0), (12, 0)
"""GPUs that `gelu_inside` says yes for."""


@dataclass(frozen=True, slots=True)
class FusedBlock:
    """A block, with its norms as the kernels take them."""

    block: Block
    attention_norm: RowNorm
    query_norm: RowNorm
    key_norm: RowNorm
    mlp_norm: RowNorm
    attention: Attention
    gelu_inside: bool

    @classmethod
    def of(cls, block: Block, attention: Attention) -> FusedBlock:
        """The same weights, with this way to attend."""
        layers = block.attention_norm, block.attention.query_norm, block.attention.key_norm, block.mlp_norm
        first, query, key, second = (RowNorm.of(layer) for layer in layers)
        return cls(block, first, query, key, second, attention, gelu_inside(block.mlp_in))


@dataclass(frozen=True, slots=True)
class NextNorm:
    """What comes after a block, and is computed by its last kernel: the next norm, or the last one of all."""

    norm: RowNorm
    modulation: Modulation
    dtype: torch.dtype


BlockFunction = Callable[[Kernels, FusedBlock, Tensor, Normed, Tensor, NextNorm], Normed]


class FusedTransformer(Transformer):
    """Transformer by kernels. Its table of modulations is float32, as they read it."""

    def __init__(self, network: Denoiser, dtype: torch.dtype, kernels: Kernels, attention: Attention = "torch") -> None:
        super().__init__(network, dtype)
        self._kernels = kernels
        self._fused = [FusedBlock.of(block, attention) for block in self._blocks]
        self._final_norm, self._head_norm = RowNorm.of(network.final_norm), RowNorm.of(network.head.norm)
        self._run_fused: BlockFunction = run_block
        self._one = self._final_norm.weight.new_ones(self.size.hidden)

    @property
    def table_dtype(self) -> torch.dtype:
        """float32."""
        return torch.float32

    def compile(self, backend: str = "inductor") -> None:
        """Has torch.compile make one function of a block; the kernels stay as they are in it."""
        self._run_fused = torch.compile(run_block, fullgraph=True, dynamic=False, backend=backend)

    def patches(self, latent: Tensor, shots: Tensor, row: Tensor, kept: BlockCacheBuffer | None = None) -> Tensor:
        """As Transformer's; row is float32."""
        kernels, size = self._kernels, self.size
        factors = row.view(-1, size.hidden)
        x = self.tokens(latent, shots)
        blocks = list(zip(self._fused, factors[:-2].split(MODULATIONS_A_BLOCK), strict=True))
        first, its_factors = blocks[0]
        normed = kernels.norm_modulate(
            x, first.attention_norm, for_attention(its_factors), size.shot_tokens, taken_by(first.block.attention.qkv)
        )
        last = NextNorm(self._final_norm, PLAIN, self.dtype)
        after = [
            NextNorm(block.attention_norm, for_attention(its), taken_by(block.block.attention.qkv))
            for block, its in blocks[1:]
        ]
        for number, ((block, its_factors), following) in enumerate(zip(blocks, [*after, last], strict=True)):
            if kept is not None and kept.skips(number):
                if number == kept.blocks.last:
                    normed = self._add(x, kept.change, following)
                continue
            if kept is not None:
                kept.before(number, x)
            normed = self._run_fused(kernels, block, x, normed, its_factors, following)
            if kept is not None:
                kept.after(number, x)
        # The shot's few tokens go along: a slice without them would have to be copied first.
        head = kernels.norm_modulate(normed.rows, self._head_norm, Modulation(None, factors[-2:]), 0, self.dtype)
        features: Tensor = self.network.head.output(head.rows)
        return features[:, size.shot_tokens :]

    def _add(self, x: Tensor, change: Tensor, following: NextNorm) -> Normed:
        """What skipped blocks add, into x itself, and the norm after them: a gate of one."""
        gates, shot_tokens = (self._one, self._one), self.size.shot_tokens
        norm, modulation, dtype = following.norm, following.modulation, following.dtype
        return self._kernels.gate_residual(x, change, gates, norm, modulation, shot_tokens, dtype)

    def advance(self, patches: Tensor, state: Sequence[Tensor], noise: Tensor, coefficients: Tensor) -> None:
        """As Transformer's, in one kernel."""
        self._kernels.guided_step(patches, state, noise, coefficients)


def run_block(
    kernels: Kernels, fused: FusedBlock, x: Tensor, normed: Normed, factors: Tensor, following: NextNorm
) -> Normed:
    """One block: x [B, S, D] in place, its first norm done; its twelve modulations f32 [12, D] -> the norm after it."""
    block, shot_tokens = fused.block, fused.block.shot_tokens
    image, shot = factors[IMAGE], factors[SHOT]
    normed = kernels.gate_residual(
        x,
        attend(kernels, fused, normed, x.dtype),
        (shot[2], image[2]),
        fused.mlp_norm,
        Modulation(shot[3:5], image[3:5]),
        shot_tokens,
        taken_by(block.mlp_in),
    )
    inner = gelu_product(kernels, fused, normed, x.dtype)
    return kernels.gate_residual(
        x,
        product(kernels, block.mlp_out, inner, x.dtype),
        (shot[5], image[5]),
        following.norm,
        following.modulation,
        shot_tokens,
        following.dtype,
    )


def attend(kernels: Kernels, fused: FusedBlock, normed: Normed, dtype: torch.dtype) -> Tensor:
    """Attention over all tokens: [B, S, D] -> [B, S, D]."""
    attention = fused.block.attention
    # [B, S, 3, H, d]: normalised where they lie, and read by attention from there.
    qkv = product(kernels, attention.qkv, normed, dtype).unflatten(2, (3, attention.heads, -1))
    mixed = run_attention(fused.attention, kernels, qkv, fused.query_norm, fused.key_norm).flatten(2)
    out = taken_by(attention.output)
    return product(kernels, attention.output, Normed(mixed) if out == dtype else kernels.epilogue(mixed, out), dtype)


def for_attention(factors: Tensor) -> Modulation:
    """Of a block's twelve modulations [12, D], those before its attention."""
    return Modulation(factors[SHOT][:2], factors[IMAGE][:2])


def taken_by(layer: nn.Linear) -> torch.dtype:
    """The type that a layer's product takes its rows in."""
    return layer.dtype if isinstance(layer, RowwiseLinear) else layer.weight.dtype


def product(kernels: Kernels, layer: nn.Linear, given: Normed, dtype: torch.dtype) -> Tensor:
    """A layer of rows [B, S, in] in the type that it takes -> [B, S, out] in `dtype`."""
    if not isinstance(layer, RowwiseLinear):
        out: Tensor = layer(given.rows)
        return out
    if layer.dtype == INT8:
        return of_sums(kernels, layer, given, dtype).rows
    assert given.scales is not None
    flat = layer.product(given.rows.flatten(0, 1), given.scales.view(-1, 1), dtype)
    shaped: Tensor = flat.unflatten(0, given.rows.shape[:2])
    return shaped


def of_sums(kernels: Kernels, layer: RowwiseLinear, given: Normed, out: torch.dtype, gelu: bool = False) -> Normed:
    """An INT8 layer's sums as numbers of the type `out`, by GELU if asked: one pass over them."""
    assert given.scales is not None
    sums = layer.sums(given.rows.flatten(0, 1)).unflatten(0, given.rows.shape[:2])
    return kernels.epilogue_of_sums(sums, (given.scales, layer.scale.flatten(), layer.bias), out, gelu)


def gelu_product(kernels: Kernels, fused: FusedBlock, given: Normed, dtype: torch.dtype) -> Normed:
    """The MLP's first product of what it takes, and GELU -> [B, S, 4 D] as its second product takes it."""
    layer, out = fused.block.mlp_in, taken_by(fused.block.mlp_out)
    if not isinstance(layer, RowwiseLinear):
        if fused.gelu_inside:
            flat = torch._addmm_activation(layer.bias, given.rows.flatten(0, 1), layer.weight.t(), use_gelu=True)
            return Normed(flat.unflatten(0, given.rows.shape[:2]))
        return Normed(functional.gelu(layer(given.rows), approximate="tanh"))
    if layer.dtype == INT8:
        return of_sums(kernels, layer, given, out, gelu=True)
    return kernels.epilogue(product(kernels, layer, given, dtype), out, gelu=True)


def gelu_inside(layer: nn.Linear) -> bool:
    """Whether cuBLASLt shall compute GELU, by tanh there, inside a product of 16 bits.

    That gains on H100 and loses on RTX 50 (SGLang's pull requests 28166 and 34350); elsewhere nobody has said so. On a
    CPU the same function of PyTorch is another GELU.
    """
    weight = layer.weight
    if not weight.is_cuda or weight.dtype not in (torch.float16, torch.bfloat16):
        return False
    return INSIDE_FROM <= torch.cuda.get_device_capability(weight.device) < INSIDE_BELOW
