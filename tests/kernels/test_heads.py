"""head_norm and attention against PyTorch, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import Operators, Outputs, assert_close, case_id, relative_error
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import attention, head_norm
from animegamer_rt.models.denoiser import HEAD_NORM_EPSILON

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Case:
    batch: int
    tokens: int
    heads: int
    width: int = 64
    dtype: torch.dtype = BF16


NORMS = (
    Case(1, 1, 1, 4, F32),
    Case(2, 7, 3, 16, F16),
    Case(2, 65, 5),
    Case(1, 259, 1, 128, F32),
    Case(1, 3, 30),
    Case(1, 5, 1, 256, F16),
    Case(2, 601, 3),
)
ATTENTIONS = (Case(1, 1, 1, dtype=F16), Case(1, 64, 2), Case(2, 129, 2), Case(1, 2 * 192 + 5, 1, dtype=F16))
FULL = Case(2, 6976, 30)


def random_heads(case: Case) -> tuple[Tensor, Tensor]:
    """qkv [B, S, 3, heads, width], and the four vectors of the norms [4, width]."""
    random = torch.Generator().manual_seed(case.tokens)
    qkv = torch.randn((case.batch, case.tokens, 3, case.heads, case.width), generator=random)
    qkv[:, :, 1] += 3 * torch.randn((case.batch, 1, case.heads, case.width), generator=random)
    return (2 * qkv + 1).to(case.dtype), torch.randn((4, case.width), generator=random)


def run_norm(case: Case, operators: Operators) -> Tensor:
    qkv, vectors = (array.to(operators.device) for array in random_heads(case))
    out = Outputs(operators.device)
    head_norm(operators.library, out.new("qkv", qkv.shape, case.dtype).copy_(qkv), *vectors, HEAD_NORM_EPSILON)
    return out.read()["qkv"]


def normed(case: Case) -> Tensor:
    """qkv with PyTorch's own LayerNorm of queries and keys."""
    qkv, vectors = (array.double() for array in random_heads(case))
    for part in range(2):
        weight, bias = vectors[2 * part], vectors[2 * part + 1]
        qkv[:, :, part] = functional.layer_norm(qkv[:, :, part], (case.width,), weight, bias, HEAD_NORM_EPSILON)
    return qkv


@pytest.mark.parametrize("case", NORMS, ids=case_id)
def test_norm_is_pytorchs(operators: Operators, case: Case) -> None:
    assert_close("qkv", run_norm(case, operators), normed(case), roundings=3)


def attend(operators: Operators, qkv: Tensor) -> Tensor:
    out = Outputs(operators.device)
    attention(operators.library, qkv.to(operators.device), out.new("out", qkv[:, :, 0].shape, qkv.dtype))
    return out.read()["out"]


def exact_attention(qkv: Tensor) -> Tensor:
    heads = (part.double().transpose(1, 2) for part in qkv.unbind(2))
    return functional.scaled_dot_product_attention(*heads).transpose(1, 2).cpu()


def assert_rounded_weights(found: Tensor, qkv: Tensor) -> None:
    """Asserts the error bound of weights rounded to the values' dtype: half an ulp of the largest value."""
    expected, step = exact_attention(qkv), torch.finfo(found.dtype).eps / 2
    assert found.shape == expected.shape and bool(found.isfinite().all())
    allowed = 2 * step * qkv[:, :, 2].double().abs().amax(dim=1, keepdim=True).cpu() + 1e-5
    assert bool(((found.double() - expected).abs() <= allowed).all())
    assert relative_error(found, expected) < step


@pytest.mark.parametrize("case", ATTENTIONS, ids=lambda case: f"{case_id(case)}-warpgroups")
def test_attention_is_pytorchs(operators: Operators, reference: Operators, case: Case) -> None:
    qkv = normed(case).to(case.dtype)
    found = attend(operators, qkv)
    if operators is reference:
        assert_close("out", found, exact_attention(qkv))
    else:
        assert_rounded_weights(found, qkv)


@pytest.mark.parametrize("largest", [0, 1, 63, 69], ids=lambda key: f"{key}-warpgroups")
def test_key_far_above_all_others_has_all_the_weight(operators: Operators, largest: int) -> None:
    qkv = random_heads(Case(1, 70, 1, dtype=F16))[0]
    qkv[:, :, 0], qkv[:, :, 1] = 1.0, -30.0
    qkv[:, largest, 1] = 30.0
    assert torch.equal(attend(operators, qkv), qkv[:, largest : largest + 1, 2].expand(-1, 70, -1, -1))
    qkv[:, 5, 0, 0, 7] = float("nan")
    found = attend(operators, qkv)
    assert bool(found[:, 5].isnan().all()) and bool(found[:, :5].isfinite().all())


def test_keys_that_no_query_prefers_have_equal_weights_warpgroups(operators: Operators) -> None:
    """The keys after the last one, which a tile of 64 holds as zeros, score far above these and must not count."""
    qkv = random_heads(Case(1, 70, 1, dtype=F16))[0]
    qkv[:, :, 0], qkv[:, :, 1] = 30.0, -30.0
    assert_rounded_weights(attend(operators, qkv), qkv)


@pytest.mark.gpu
def test_full_size_kernels_agree_with_pytorch_head_by_head_warpgroups(gpu: Operators) -> None:
    assert_close("qkv", run_norm(FULL, gpu), normed(FULL), roundings=3)
    qkv = normed(FULL).to(FULL.dtype)
    found = attend(gpu, qkv)
    for head in (0, FULL.heads - 1):
        one = slice(head, head + 1)
        assert_rounded_weights(found[:, :, one], qkv[:, :, :, one])
