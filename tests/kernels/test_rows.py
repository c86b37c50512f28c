"""norm_modulate and gate_residual: the reference against PyTorch, the kernels against the reference."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import Norm, gate_residual, norm_modulate
from animegamer_rt.models.denoiser import BLOCK_NORM_EPSILON, Block, DenoiserSize
from kernel_results import LARGEST, Kernels, Outputs, assert_close, assert_same

EPSILON = 1e-5


@dataclass(frozen=True)
class Case:
    """x [batch, tokens, width]; out None: the dtype of x. `affine`: weight and bias; `modulated`: shifts and scales."""

    batch: int
    tokens: int
    shot_tokens: int
    width: int
    dtype: torch.dtype = torch.float32
    out: torch.dtype | None = None
    affine: bool = True
    modulated: bool = True
    shared: bool = False

    def __str__(self) -> str:
        names = [str(dtype).removeprefix("torch.") for dtype in (self.dtype, self.out) if dtype is not None]
        flags = [name for name in ("affine", "modulated", "shared") if getattr(self, name)]
        return "-".join([f"{self.batch}x{self.tokens}({self.shot_tokens})x{self.width}", *names, *flags])


F16, BF16, F8, I8 = torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8
CASES = (
    Case(1, 1, 0, 4),
    Case(1, 1, 1, 8, BF16),
    Case(1, 1, 0, 1920, F16, F8),
    Case(2, 7, 3, 36),
    Case(2, 7, 7, 64, F16, affine=False),
    Case(2, 9, 0, 128, BF16, I8, shared=True),
    Case(3, 5, 2, 264, BF16, modulated=False),
    Case(1, 23, 11, 1920, affine=False, modulated=False),
    Case(2, 61, 46, 192, BF16, F8),
    Case(2, 61, 46, 192, torch.float32, I8),
    Case(2, 13, 9, 1920, BF16, F8),
    Case(2, 13, 9, 1920, F16, I8, affine=False),
    Case(1, 3, 1, 4096),
    Case(1, 3, 1, 8192, BF16),
    Case(1, 3, 1, 8192, F16, F8),
)
# More rows than any GPU runs blocks: every block takes several, and its run crosses from shot to image and to entry 1.
FULL = Case(2, 6976, 226, 1920, BF16, F8)


@dataclass
class Inputs:
    x: Tensor
    branch: Tensor
    # Six chunks apart in one table, as a modulation's linear layer leaves them: [batch, 6 * width], or [6 * width].
    table: Tensor
    affine: Tensor

    def to(self, device: str) -> Inputs:
        return Inputs(*(array.to(device) for array in (self.x, self.branch, self.table, self.affine)))


def inputs(case: Case) -> Inputs:
    random = torch.Generator().manual_seed(case.width + case.tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    # Means away from 0 and rows of different size, as residual streams have.
    rows = (case.batch, case.tokens, 1)
    x = normal(case.batch, case.tokens, case.width) * torch.exp(normal(*rows) / 2) + 2 * normal(*rows)
    branch = normal(case.batch, case.tokens, case.width)
    table = 0.5 * normal(*(() if case.shared else (case.batch,)), 6 * case.width)
    return Inputs(x.to(case.dtype), branch.to(case.dtype), table, normal(2, case.width))


def chunks(case: Case, table: Tensor) -> tuple[Tensor, ...]:
    return table.chunk(6, dim=-1)


def run(case: Case, operators: Kernels, gated: bool, normed: bool = True) -> dict[str, Tensor]:
    library, device = operators.library, operators.device
    given, out = inputs(case).to(device), Outputs(device)
    image_shift, image_scale, image_gate, shot_shift, shot_scale, shot_gate = chunks(case, given.table)
    weight, bias = given.affine if case.affine else (None, None)
    quantised = case.out is not None
    norm = None
    if normed:
        norm = Norm(
            out.new("out", given.x.shape, case.out or case.dtype),
            EPSILON,
            out.new("out_scales", given.x.shape[:2], torch.float32) if quantised else None,
            weight,
            bias,
            *((image_shift, image_scale, shot_shift, shot_scale) if case.modulated else ()),
        )
    if gated:
        x_next = out.new("x_next", given.x.shape, case.dtype)
        gate_residual(library, given.x, given.branch, image_gate, shot_gate, x_next, case.shot_tokens, norm)
    elif norm is not None:
        norm_modulate(library, given.x, norm, case.shot_tokens)
    return out.read()


def truth(case: Case, gated: bool) -> dict[str, Tensor]:
    """In float64 with PyTorch's own LayerNorm; x_next as rounded to its dtype is what the norm sees."""
    given = inputs(case)
    per_batch = [chunk.double().reshape(-1, 1, case.width) for chunk in chunks(case, given.table)]
    image, shot = per_batch[:3], per_batch[3:]
    is_shot = (torch.arange(case.tokens) < case.shot_tokens)[None, :, None]
    shift, scale, gate = (torch.where(is_shot, b, a) for a, b in zip(image, shot, strict=True))
    found = {}
    x = given.x
    if gated:
        x = found["x_next"] = (x.double() + gate * given.branch.double()).to(case.dtype)
    weight, bias = given.affine.double() if case.affine else (None, None)
    y = functional.layer_norm(x.double(), (case.width,), weight, bias, EPSILON)
    found["out"] = y * (1 + scale) + shift if case.modulated else y
    if case.out is not None:
        found["out_scales"] = found["out"].abs().amax(dim=2) / LARGEST[case.out]
        codes = found["out"] / found["out_scales"][..., None]
        found["out"] = codes.round().to(I8) if case.out == I8 else codes.to(case.out)
    return found


@pytest.mark.parametrize("gated", [False, True], ids=["norm_modulate", "gate_residual"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_is_pytorchs_result(reference: Kernels, case: Case, gated: bool) -> None:
    assert_same(run(case, reference, gated), truth(case, gated), roundings=2)


@pytest.mark.parametrize("gated", [False, True], ids=["norm_modulate", "gate_residual"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel_is_the_references_result(reference: Kernels, kernels: Kernels, case: Case, gated: bool) -> None:
    assert_same(run(case, kernels, gated), run(case, reference, gated), roundings=3)


@pytest.mark.gpu
@pytest.mark.parametrize("gated", [False, True], ids=["norm_modulate", "gate_residual"])
def test_full_size_kernel_is_the_references_result(reference: Kernels, gpu: Kernels, gated: bool) -> None:
    assert_same(run(FULL, gpu, gated), run(FULL, reference, gated), roundings=3)


def test_gate_and_residual_go_without_a_norm_and_in_place(operators: Kernels) -> None:
    library, device = operators.library, operators.device
    case = Case(2, 9, 4, 64, BF16)
    expected = truth(case, gated=True)["x_next"]
    assert_close("x_next", run(case, operators, gated=True, normed=False)["x_next"], expected, 2)
    given = inputs(case).to(device)
    _, _, image_gate, _, _, shot_gate = chunks(case, given.table)
    gate_residual(library, given.x, given.branch, image_gate, shot_gate, given.x, case.shot_tokens)
    assert_close("x", given.x.cpu(), expected, 2)


@pytest.mark.parametrize("dtype", [F8, I8])
def test_rows_of_zeros_and_of_nans_have_their_scales(operators: Kernels, dtype: torch.dtype) -> None:
    library, device = operators.library, operators.device
    x = torch.zeros(1, 3, 64, device=device)
    x[0, 1] = torch.arange(64.0)
    x[0, 2, 5] = float("nan")
    outputs = Outputs(device)
    norm = Norm(outputs.new("out", x.shape, dtype), EPSILON, outputs.new("out_scales", (1, 3), torch.float32))
    norm_modulate(library, x, norm, shot_tokens=0)
    found = outputs.read()
    values = found["out"].float() * found["out_scales"][..., None]
    assert bool((values[0, 0] == 0).all()) and float(found["out_scales"][0, 0]) > 0
    assert float(values[0, 1].max()) == pytest.approx(31.5 / 341.25**0.5, rel=1e-3)
    assert bool(values[0, 2].isnan().all())


def test_a_block_made_of_the_operators_is_the_models_block(operators: Kernels) -> None:
    library, device = operators.library, operators.device
    torch.manual_seed(0)
    size = DenoiserSize(hidden=48, layers=1, heads=3, time_width=16, latent_height=4, latent_width=4, shot_tokens=5)
    block = Block(size).requires_grad_(False)
    for norm in (block.attention_norm, block.mlp_norm):
        torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)
    x, embedding = torch.randn(2, 13, 48), torch.randn(2, 16)
    expected = block(x, embedding)

    block, x = block.to(device), x.to(device)
    table = block.modulation(embedding.to(device)).chunk(12, dim=1)
    image, shot = table[:6], table[6:]
    first, second = torch.empty_like(x), torch.empty_like(x)
    norm_modulate(
        library,
        x,
        Norm(
            first, BLOCK_NORM_EPSILON, None, block.attention_norm.weight, block.attention_norm.bias,
            image[0], image[1], shot[0], shot[1],
        ),
        size.shot_tokens,
    )  # fmt: skip
    gate_residual(
        library, x, block.attention(first), image[2], shot[2], x, size.shot_tokens,
        Norm(
            second, BLOCK_NORM_EPSILON, None, block.mlp_norm.weight, block.mlp_norm.bias,
            image[3], image[4], shot[3], shot[4],
        ),
    )  # fmt: skip
    inner = functional.gelu(block.mlp_in(second), approximate="tanh")
    gate_residual(library, x, block.mlp_out(inner), image[5], shot[5], x, size.shot_tokens)
    assert float((x.cpu() - expected).abs().max()) < 1e-5 * float(expected.abs().max())
