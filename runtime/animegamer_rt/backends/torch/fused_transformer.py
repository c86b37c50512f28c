"""The denoiser's transformer with our kernels between its matrix products; weights as in `transformer`.

A block is four matrix products, attention, and kernels between them. Each kernel writes the next product's input in
that product's dtype, FP8 and INT8 with their scales. Kernels compute in float32, so results are close to
`transformer`'s, but not equal. Source: MODEL.md section 4; docs/KERNELS.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from animegamer_rt.models.denoiser import MODULATIONS_PER_BLOCK, Block, Denoiser

from .attention import run_attention
from .kernels import PLAIN, Kernels, Modulation, Normed, RowNorm
from .rowwise_linear import INT8, RowwiseLinear
from .transformer import IMAGE, SHOT, Transformer

FUSED_GELU_FROM, FUSED_GELU_BELOW = (9, 0), (12, 0)
"""Compute capabilities for which `fuses_gelu` is true."""


@dataclass(frozen=True, slots=True)
class FusedBlock:
    """A block with its norms in the form that the kernels take, and its attention implementation."""

    block: Block
    attention_norm: RowNorm
    query_norm: RowNorm
    key_norm: RowNorm
    mlp_norm: RowNorm
    attention: str
    fuses_gelu: bool

    @classmethod
    def of(cls, block: Block, attention: str) -> FusedBlock:
        """Wraps a block; the weights are shared."""
        layers = block.attention_norm, block.attention.query_norm, block.attention.key_norm, block.mlp_norm
        first, query, key, second = (RowNorm.of(layer) for layer in layers)
        return cls(block, first, query, key, second, attention, fuses_gelu(block.mlp_in))


@dataclass(frozen=True, slots=True)
class NextNorm:
    """The norm after a block, which the block's last kernel computes: the next block's, or the final one."""

    norm: RowNorm
    modulation: Modulation
    dtype: torch.dtype


class FusedTransformer(Transformer):
    """Transformer with our kernels, which read the modulation table in float32."""

    def __init__(self, network: Denoiser, dtype: torch.dtype, kernels: Kernels, attention: str = "torch") -> None:
        super().__init__(network, dtype)
        self._kernels = kernels
        self._fused = [FusedBlock.of(block, attention) for block in self._blocks]
        self._final_norm, self._head_norm = RowNorm.of(network.final_norm), RowNorm.of(network.head.norm)

    @property
    def table_dtype(self) -> torch.dtype:
        """float32, as the kernels read it."""
        return torch.float32

    def patches(self, latent: Tensor, shots: Tensor, row: Tensor) -> Tensor:
        """As Transformer.patches; row is float32."""
        kernels, size = self._kernels, self.size
        factors = row.view(-1, size.hidden)
        x = self.tokens(latent, shots)
        blocks = list(zip(self._fused, factors[:-2].split(MODULATIONS_PER_BLOCK), strict=True))
        first, block_factors = blocks[0]
        normed = kernels.norm_modulate(
            x,
            first.attention_norm,
            attention_modulation(block_factors),
            size.shot_tokens,
            input_dtype(first.block.attention.qkv),
        )
        last = NextNorm(self._final_norm, PLAIN, self.dtype)
        after = [
            NextNorm(block.attention_norm, attention_modulation(its), input_dtype(block.block.attention.qkv))
            for block, its in blocks[1:]
        ]
        for (block, block_factors), next_norm in zip(blocks, [*after, last], strict=True):
            normed = run_block(kernels, block, x, normed, block_factors, next_norm)
        # Includes the shot's few tokens: a slice without them would have to be copied first.
        head = kernels.norm_modulate(normed.rows, self._head_norm, Modulation(None, factors[-2:]), 0, self.dtype)
        features: Tensor = self.network.head.output(head.rows)
        return features[:, size.shot_tokens :]

    def advance(self, patches: Tensor, state: Sequence[Tensor], noise: Tensor, coefficients: Tensor) -> None:
        """As Transformer.advance, in one kernel."""
        self._kernels.guided_step(patches, state, noise, coefficients)


def run_block(
    kernels: Kernels, fused: FusedBlock, x: Tensor, normed: Normed, factors: Tensor, next_norm: NextNorm
) -> Normed:
    """Runs one block on x [B, S, D] in place and returns the norm that follows it.

    normed: the block's first norm, already computed; factors f32 [12, D]: its modulations.
    """
    block, shot_tokens = fused.block, fused.block.shot_tokens
    image, shot = factors[IMAGE], factors[SHOT]
    normed = kernels.gate_residual(
        x,
        attend(kernels, fused, normed, x.dtype),
        (shot[2], image[2]),
        fused.mlp_norm,
        Modulation(shot[3:5], image[3:5]),
        shot_tokens,
        input_dtype(block.mlp_in),
    )
    inner = gelu_product(kernels, fused, normed, x.dtype)
    return kernels.gate_residual(
        x,
        product(kernels, block.mlp_out, inner, x.dtype),
        (shot[5], image[5]),
        next_norm.norm,
        next_norm.modulation,
        shot_tokens,
        next_norm.dtype,
    )


def attend(kernels: Kernels, fused: FusedBlock, normed: Normed, dtype: torch.dtype) -> Tensor:
    """Attention over all tokens: [B, S, D] -> [B, S, D]."""
    attention = fused.block.attention
    # [B, S, 3, H, d]: normalised in place, and attention reads them there.
    qkv = product(kernels, attention.qkv, normed, dtype).unflatten(2, (3, attention.heads, -1))
    mixed = run_attention(fused.attention, kernels, qkv, fused.query_norm, fused.key_norm).flatten(2)
    out = input_dtype(attention.output)
    return product(kernels, attention.output, Normed(mixed) if out == dtype else kernels.epilogue(mixed, out), dtype)


def attention_modulation(factors: Tensor) -> Modulation:
    """The modulation before a block's attention, out of its twelve [12, D]."""
    return Modulation(factors[SHOT][:2], factors[IMAGE][:2])


def input_dtype(layer: nn.Linear) -> torch.dtype:
    """The dtype in which a layer takes its input."""
    return layer.dtype if isinstance(layer, RowwiseLinear) else layer.weight.dtype


def product(kernels: Kernels, layer: nn.Linear, inputs: Normed, dtype: torch.dtype) -> Tensor:
    """A linear layer: inputs [B, S, in] in its input dtype -> [B, S, out] in `dtype`."""
    if not isinstance(layer, RowwiseLinear):
        out: Tensor = layer(inputs.rows)
        return out
    if layer.dtype == INT8:
        return dequantize_sums(kernels, layer, inputs, dtype).rows
    assert inputs.scales is not None
    flat = layer.product(inputs.rows.flatten(0, 1), inputs.scales.view(-1, 1), dtype)
    shaped: Tensor = flat.unflatten(0, inputs.rows.shape[:2])
    return shaped


def dequantize_sums(
    kernels: Kernels, layer: RowwiseLinear, inputs: Normed, out: torch.dtype, gelu: bool = False
) -> Normed:
    """An INT8 layer's output in the dtype `out`, through GELU if `gelu`; one pass over the int32 sums."""
    assert inputs.scales is not None
    sums = layer.sums(inputs.rows.flatten(0, 1)).unflatten(0, inputs.rows.shape[:2])
    return kernels.epilogue(sums, out, gelu, (inputs.scales, layer.scale.flatten(), layer.bias))


def gelu_product(kernels: Kernels, fused: FusedBlock, inputs: Normed, dtype: torch.dtype) -> Normed:
    """The MLP's first layer and GELU -> [B, S, 4 D] in the input dtype of its second layer."""
    layer, out = fused.block.mlp_in, input_dtype(fused.block.mlp_out)
    if not isinstance(layer, RowwiseLinear):
        if fused.fuses_gelu:
            flat = torch._addmm_activation(layer.bias, inputs.rows.flatten(0, 1), layer.weight.t(), use_gelu=True)
            return Normed(flat.unflatten(0, inputs.rows.shape[:2]))
        return Normed(functional.gelu(layer(inputs.rows), approximate="tanh"))
    if layer.dtype == INT8:
        return dequantize_sums(kernels, layer, inputs, out, gelu=True)
    return kernels.epilogue(product(kernels, layer, inputs, dtype), out, gelu=True)


def fuses_gelu(layer: nn.Linear) -> bool:
    """Whether cuBLASLt computes the tanh GELU inside a 16-bit product, on sm_90 and sm_100.

    It is faster on H100 and slower on RTX 50 (SGLang's pull requests 28166 and 34350); other GPUs were not measured. On
    a CPU the same PyTorch function computes the erf GELU.
    """
    weight = layer.weight
    if not weight.is_cuda or weight.dtype not in (torch.float16, torch.bfloat16):
        return False
    return FUSED_GELU_FROM <= torch.cuda.get_device_capability(weight.device) < FUSED_GELU_BELOW
