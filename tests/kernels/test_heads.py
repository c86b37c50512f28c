"""head_norm and head_norm_int8 against PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import Operators, Outputs, assert_same, case_id
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import Heads, Int8Outputs, head_norm, head_norm_int8, int8_workspace
from animegamer_rt.models.denoiser import HEAD_NORM_EPSILON


@dataclass(frozen=True)
class Case:
    batch: int
    tokens: int
    heads: int
    width: int
    dtype: torch.dtype = torch.float32
    query_group: int = 1
    key_group: int = 1
    head_major: bool = False
    """Whether head_norm writes [B, heads, S, width], the layout of PyTorch's attention."""


CASES = (
    Case(1, 1, 1, 4),
    Case(2, 7, 3, 16, torch.float16, 1, 4, head_major=True),
    Case(2, 65, 5, 64, torch.bfloat16, 32, 64),
    Case(1, 259, 1, 128, torch.float32, 128, 16, head_major=True),
    Case(1, 3, 30, 64, torch.bfloat16, 2, 3),
    Case(1, 5, 1, 256, torch.float16, 2, 1),
    # Less than a group; more groups than a block handles.
    Case(2, 9, 2, 64, torch.bfloat16, 32, 64),
    Case(2, 601, 3, 64, torch.bfloat16, 32, 64, head_major=True),
)
FULL = Case(2, 6976, 30, 64, torch.bfloat16, 32, 64, head_major=True)


def inputs(case: Case) -> tuple[Tensor, Tensor]:
    """qkv, and the four vectors of the norms [4, width]. Keys have a mean over tokens, which smoothing removes."""
    random = torch.Generator().manual_seed(case.tokens)
    qkv = torch.randn((case.batch, case.tokens, 3, case.heads, case.width), generator=random)
    qkv[:, :, 1] += 3 * torch.randn((case.batch, 1, case.heads, case.width), generator=random)
    return (2 * qkv + 1).to(case.dtype), torch.randn((4, case.width), generator=random)


def heads(case: Case, device: str) -> Heads:
    qkv, vectors = (array.to(device) for array in inputs(case))
    return Heads(qkv, *vectors, HEAD_NORM_EPSILON)


def run(case: Case, operators: Operators) -> dict[str, Tensor]:
    library, device = operators.library, operators.device
    source, out = heads(case, device), Outputs(device)
    sizes = (case.batch, case.tokens, case.heads, case.width)
    if case.head_major:
        major = (case.batch, case.heads, case.tokens, case.width)
        arrays = [out.new(name, major, case.dtype).transpose(1, 2) for name in ("query", "key", "value")]
    else:
        arrays = [out.new(name, sizes, case.dtype) for name in ("query", "key", "value")]
    head_norm(library, source, *arrays)
    return out.read()


def run_int8(case: Case, operators: Operators) -> dict[str, Tensor]:
    library, device = operators.library, operators.device
    source, out = heads(case, device), Outputs(device)
    rows = (case.batch, case.heads)
    outputs = Int8Outputs(
        out.new("query", (*rows, case.tokens, case.width), torch.int8),
        out.new("key", (*rows, case.tokens, case.width), torch.int8),
        out.new("query_scales", (*rows, -(-case.tokens // case.query_group)), torch.float32),
        out.new("key_scales", (*rows, -(-case.tokens // case.key_group)), torch.float32),
        out.new("key_mean", (*rows, case.width), torch.float32),
        torch.empty(int8_workspace(library, source), dtype=torch.uint8, device=device),
    )
    head_norm_int8(library, source, outputs, case.query_group, case.key_group)
    return out.read()


def truth(case: Case) -> dict[str, Tensor]:
    """float64 [B, heads, S, width] each, by PyTorch's own LayerNorm."""
    qkv, (query_weight, query_bias, key_weight, key_bias) = inputs(case)
    query, key, value = qkv.double().permute(2, 0, 3, 1, 4).unbind(0)
    size = (case.width,)
    return {
        "query": functional.layer_norm(query, size, query_weight.double(), query_bias.double(), HEAD_NORM_EPSILON),
        "key": functional.layer_norm(key, size, key_weight.double(), key_bias.double(), HEAD_NORM_EPSILON),
        "value": value,
    }


def truth_int8(case: Case) -> dict[str, Tensor]:
    exact, found = truth(case), {}
    found["key_mean"] = exact["key"].mean(dim=2)
    exact["key"] = exact["key"] - found["key_mean"][:, :, None]
    for name, group in (("query", case.query_group), ("key", case.key_group)):
        groups = exact[name].split(group, dim=2)
        scales = torch.stack([part.abs().amax(dim=(2, 3)) / 127 for part in groups], dim=2).clamp(min=1e-30 / 127)
        found[f"{name}_scales"] = scales
        apart = torch.cat([part / scales[:, :, i, None, None] for i, part in enumerate(groups)], dim=2)
        found[name] = apart.round().to(torch.int8)
    return found


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_norm_is_pytorchs(operators: Operators, case: Case) -> None:
    expected = truth(case)
    if not case.head_major:
        expected = {name: array.transpose(1, 2) for name, array in expected.items()}
    assert_same(run(case, operators), expected, roundings=3)


# With one token the keys equal their mean, and only rounding error remains.
@pytest.mark.parametrize("case", [case for case in CASES if case.tokens > 1], ids=case_id)
def test_int8_heads_are_pytorchs(operators: Operators, case: Case) -> None:
    assert_same(run_int8(case, operators), truth_int8(case), roundings=16)


@pytest.mark.gpu
def test_full_size_kernels_agree_with_pytorch(gpu: Operators) -> None:
    expected = truth(FULL)
    assert_same(run(FULL, gpu), expected, roundings=3)
    assert_same(run_int8(FULL, gpu), truth_int8(FULL), roundings=16)
