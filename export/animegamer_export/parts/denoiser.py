"""Writes the denoiser's ONNX part: network, guidance and solver as one step; one graph for three kinds of step.

The graph differs from the network's code. Both rows share timestep and motion scope, so everything that depends only on
those is computed once and folded into the norms, and the last block computes only what is read. The weights are the
same, and `check_outputs` compares both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx.ops import attention as attention_node
from torch.onnx.ops import symbolic, symbolic_multi_out

from animegamer_export.onnx_io.write import Case, ExportResult, Graph, Precision, check_outputs, export_copy, write
from animegamer_rt.bundle.roles import DENOISER
from animegamer_rt.models.denoiser import MODULATIONS_PER_BLOCK, Block, Denoiser
from animegamer_rt.models.denoiser_step import DenoiserStep, advance

WEIGHTS = f"{DENOISER}.weights"
TOLERANCE = 1e-3
"""float32 in another order of operations, over all layers; guidance multiplies the error by up to 7."""

INT8_TOLERANCE = 0.25
"""The largest single error after guidance: pocket has 0.16; a wrong product gives about 1."""

MAX_WEIGHT_CODE = 63
"""The largest weight code: two products with an input of 255 fit into 16 bits, where x86 without VNNI accumulates."""

MIN_SCALE = 1e-12
"""The scale of an output whose weights are all 0, to avoid division by 0."""

AttentionForm = Literal["onnx", "onnxruntime"]
"""`onnx`: the standard's Attention, for every engine; `onnxruntime`: its own MultiHeadAttention, flash on the CPU."""

INPUTS = (
    "latent",
    "x0_prev",
    "noise",
    "difference",
    "coefficients",
    "timestep",
    "motion_scope",
    "shot",
    "rows",
)
OUTPUTS = ("next_latent", "x0", "next_difference")


def export_denoiser(
    denoiser: Denoiser,
    unconditional: Tensor,
    folder: Path,
    precision: Precision = "fp16",
    attention: AttentionForm = "onnx",
    int8: bool = False,
    part: str = DENOISER,
) -> ExportResult:
    """Writes <part>.onnx and its weights; unconditional [226, D]: the constant of row 0 (Encoder.unconditional).

    With `int8`, also writes <part>_int8.onnx for onnxruntime on the CPU: products of 8-bit integers, quantised from
    the same weights at load. Both graphs are checked on CFG-pair, conditional and reuse steps. Raises BundleError if
    the outputs of onnxruntime and torch differ.
    """
    int8_part = f"{part}_int8"
    denoiser = export_copy(denoiser, precision)
    if precision == "fp16":
        unconditional = unconditional.half().float()
    reference = DenoiserStep(denoiser, unconditional).eval()
    with torch.no_grad():
        graphs = [denoiser_graph(StepGraph(denoiser, unconditional, attention), part)]
        if int8:
            graphs.append(denoiser_graph(StepGraph(denoiser, unconditional, "onnxruntime", _Int8Block), int8_part))
        parts, cases = write(folder, graphs, f"{part}.weights", precision), list(_cases(reference))
        errors = check_outputs(folder, [(part, case) for case in cases], TOLERANCE)
        if int8:
            errors |= check_outputs(folder, [(int8_part, case) for case in cases], INT8_TOLERANCE)
            parts = {part: replace(parts[part], int8_file=parts[int8_part].file)}
        return ExportResult(parts, errors)


def denoiser_graph(step: StepGraph, name: str = DENOISER) -> Graph:
    """The graph to export, with the inputs of a CFG pair as an example."""
    inputs = dict(zip(INPUTS, example_step(step.denoiser, [0, 1], 0.0), strict=True))
    return Graph(name, step, inputs, OUTPUTS, {"rows": {0: "batch"}})


def example_step(denoiser: Denoiser, rows: list[int], reuse: float, seed: int = 0) -> tuple[Tensor, ...]:
    """Random inputs of one step, in the order of INPUTS."""
    size, random = denoiser.size, torch.Generator().manual_seed(seed)
    grid = (1, size.latent_frames, size.latent_channels, size.latent_height, size.latent_width)
    states = torch.randn(4, *grid, generator=random)
    coefficients = torch.tensor([0.6, 0.8, 3.5, reuse, 0.5, 0.7, -0.2, 0.3])
    shot = torch.randn(1, size.shot_tokens, size.hidden, generator=random)
    return *states, coefficients, torch.tensor([739.0]), torch.tensor([12.5]), shot, torch.tensor(rows)


def _cases(reference: DenoiserStep) -> Iterator[Case]:
    for seed, (name, rows, reuse) in enumerate((("pair", [0, 1], 0.0), ("conditional", [1], 0.0), ("reuse", [1], 1.0))):
        inputs = example_step(reference.denoiser, rows, reuse, seed=1 + seed)
        outputs = dict(zip(OUTPUTS, reference(*inputs), strict=True))
        yield Case(name, dict(zip(INPUTS, inputs, strict=True)), outputs)


class StepGraph(nn.Module):
    """One step, like models/denoiser_step.py's DenoiserStep. B rows, S tokens, D hidden, P patches."""

    unconditional: Tensor

    def __init__(
        self, denoiser: Denoiser, unconditional: Tensor, attention: AttentionForm, kind: type[_Block] | None = None
    ) -> None:
        super().__init__()
        self.denoiser = denoiser
        kind, last = kind or _Block, len(denoiser.blocks) - 1
        self.blocks = nn.ModuleList(
            kind(block, attention, image_only=number == last) for number, block in enumerate(_blocks(denoiser))
        )
        self.register_buffer("unconditional", unconditional.detach()[None])

    def forward(
        self,
        latent: Tensor,
        x0_prev: Tensor,
        noise: Tensor,
        difference: Tensor,
        coefficients: Tensor,
        timestep: Tensor,
        motion_scope: Tensor,
        shot: Tensor,
        rows: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(next latent, x0, next difference), like DenoiserStep.forward."""
        shots = torch.cat([self.unconditional, shot]).index_select(0, rows)
        v = self.v(latent, timestep, motion_scope, shots)
        return advance(v, latent, x0_prev, noise, difference, coefficients.split(1))

    def v(self, latent: Tensor, timestep: Tensor, motion_scope: Tensor, shots: Tensor) -> Tensor:
        """v [B, 5, 16, h, w] of one latent [1, 5, 16, h, w] under B shots [B, 226, D]."""
        denoiser = self.denoiser
        embedding = functional.silu(denoiser.time(timestep) + denoiser.motion(motion_scope))
        image = denoiser.embed_patches(latent) + denoiser.positions
        image = image.expand(shots.shape[0], -1, -1)
        for block in self.blocks:
            shots, image = block(shots, image, embedding)
        return self.head(denoiser.final_norm(image), embedding)

    def head(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Image tokens [B, P, D] to v, with the embedding folded into the norm."""
        head = self.denoiser.head
        shift, scale = head.modulation(embedding)[0].chunk(2)
        patches = head.output(_modulated_norm(head.norm, x, shift, scale))
        frames, rows, columns = head.size.patch_grid
        channels, patch = head.size.latent_channels, head.size.patch
        patches = patches.reshape(-1, frames, rows, columns, channels, patch, patch).permute(0, 1, 4, 2, 5, 3, 6)
        out: Tensor = patches.reshape(-1, frames, channels, rows * patch, columns * patch)
        return out


def _modulated_norm(norm: nn.LayerNorm, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """norm(x)(1 + scale) + shift as one norm, with shift and scale [D] folded into its weight and bias."""
    weight = norm.weight * (1 + scale)
    return functional.layer_norm(x, norm.normalized_shape, weight, norm.bias * (1 + scale) + shift, norm.eps)


class _Block(nn.Module):
    """One block with separate shot and image tokens: each kind has one modulation vector, without a split.

    image_only: the last block, whose shot tokens nothing reads.
    """

    def __init__(self, block: Block, form: AttentionForm, image_only: bool) -> None:
        super().__init__()
        self.block, self.form, self.image_only = block, form, image_only
        self.heads = block.attention.heads
        hidden = block.attention.output.in_features
        weights = block.attention.qkv.weight.detach().split(hidden)
        biases = block.attention.qkv.bias.detach().split(hidden)
        # Three matrices: in onnxruntime, splitting the result of one takes half as long as the product itself.
        self.weights = nn.ParameterList(nn.Parameter(weight.contiguous()) for weight in weights)
        self.biases = nn.ParameterList(nn.Parameter(bias.contiguous()) for bias in biases)

    def forward(self, shot: Tensor, image: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """shot [B, 226, D], image [B, P, D], embedding [1, time_width] -> both after the block."""
        factors = self.block.modulation(embedding)[0].chunk(MODULATIONS_PER_BLOCK)
        of_image, of_shot = factors[:6], factors[6:]
        norm = self.block.attention_norm
        normed = [_modulated_norm(norm, shot, *of_shot[:2]), _modulated_norm(norm, image, *of_image[:2])]
        mixed_shot, mixed_image = self.attend(normed)
        image = self.finish(image, mixed_image, of_image)
        return (shot if mixed_shot is None else self.finish(shot, mixed_shot, of_shot)), image

    def finish(self, x: Tensor, mixed: Tensor, factors: Sequence[Tensor]) -> Tensor:
        """Output projection and MLP for one kind of token: x and mixed [B, tokens, D]."""
        block = self.block
        x = x + self.linear(mixed, block.attention.output, factors[2])
        inner = self.linear(_modulated_norm(block.mlp_norm, x, *factors[3:5]), block.mlp_in)
        return x + self.linear(functional.gelu(inner, approximate="tanh"), block.mlp_out, factors[5])

    def linear(self, x: Tensor, linear: nn.Linear, gate: Tensor | None = None) -> Tensor:
        return self.product(x, linear.weight, linear.bias, gate)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor, gate: Tensor | None = None) -> Tensor:
        """x [B, tokens, in] -> [B, tokens, out] times the gate [out].

        One matrix, so that onnxruntime adds the bias inside the product.
        """
        out: Tensor = functional.linear(x.flatten(0, 1), weight, bias).unflatten(0, x.shape[:2])
        return out if gate is None else out * gate

    def attend(self, x: Sequence[Tensor]) -> tuple[Tensor | None, Tensor]:
        """Attention over both kinds of tokens, before the output projection; with `image_only`, shot is None."""
        shot_tokens = x[0].shape[1]
        asking = x[1:] if self.image_only else x
        query = self.each_head(self.block.attention.query_norm, self.projected(asking, 0))
        key = self.each_head(self.block.attention.key_norm, self.projected(x, 1))
        mixed = self.mix(query, key, self.projected(x, 2))
        return (None, mixed) if self.image_only else (mixed[:, :shot_tokens], mixed[:, shot_tokens:])

    def projected(self, x: Sequence[Tensor], which: int) -> Tensor:
        """Queries (0), keys (1) or values (2) of all tokens [B, S, D]."""
        return torch.cat([self.product(tokens, self.weights[which], self.biases[which]) for tokens in x], dim=1)

    def each_head(self, norm: nn.LayerNorm, x: Tensor) -> Tensor:
        """The norm over every head of x [B, S, D]."""
        out: Tensor = norm(x.unflatten(2, (self.heads, -1))).flatten(2)
        return out

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention itself, all [B, tokens, D]."""
        if self.form == "onnx":
            mixed, _, _, _ = attention_node(query, key, value, q_num_heads=self.heads, kv_num_heads=self.heads)
            return mixed
        return symbolic(
            "com.microsoft::MultiHeadAttention",
            (query, key, value),
            {"num_heads": self.heads},
            dtype=query.dtype,
            shape=query.shape,
            version=1,
        )


class _Int8Block(_Block):
    """A block with 8-bit integer products over the same weights.

    onnxruntime quantises the weights per output when it folds constants at load, and each input at run time with one
    scale.
    """

    def product(self, x: Tensor, weight: Tensor, bias: Tensor, gate: Tensor | None = None) -> Tensor:
        """Like _Block.product, with the gate folded into scales and bias."""
        scales = weight.abs().amax(1).clamp_min(MIN_SCALE) / MAX_WEIGHT_CODE
        codes = torch.round(weight / scales[:, None]).to(torch.int8).t()
        if gate is not None:
            scales, bias = scales * gate, bias * gate
        # Queries, keys and values quantise the same input; onnxruntime merges the three nodes.
        coded, scale, zero = symbolic_multi_out(
            "DynamicQuantizeLinear",
            (x,),
            dtypes=(torch.uint8, torch.float32, torch.uint8),
            shapes=(x.shape, (), ()),
            version=11,
        )
        return symbolic(
            "com.microsoft::MatMulIntegerToFloat",
            (coded, codes, scale, scales, zero, None, bias),
            dtype=x.dtype,
            shape=(*x.shape[:2], len(bias)),
            version=1,
        )


def _blocks(denoiser: Denoiser) -> Iterator[Block]:
    for block in denoiser.blocks:
        assert isinstance(block, Block)
        yield block
