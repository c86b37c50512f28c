"""attention_int8 and attention against PyTorch's attention of the same heads, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from kernel_results import Operators, Outputs, assert_close, case_id, relative_error
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import Heads, Int8Outputs, MmaKind, attention, attention_int8, head_norm_int8, int8_workspace
from animegamer_rt.models.denoiser import HEAD_NORM_EPSILON

WIDTH = 64


@dataclass(frozen=True)
class Case:
    batch: int
    tokens: int
    heads: int
    dtype: torch.dtype = torch.bfloat16
    query_group: int = 32
    key_group: int = 64
    outlier: float = 1.0
    """Factor of one channel of the keys."""
    products: MmaKind = MmaKind.WARPS

    @property
    def half_sums(self) -> bool:
        """Whether sums of 64 keys are float16."""
        return self.products is MmaKind.HALF_SUMS


CASES = (
    Case(1, 1, 1),
    Case(2, 63, 1, torch.float16, 7, 128),
    Case(1, 64, 1),
    Case(1, 128, 1, torch.float16, 128, 128),
    Case(2, 129, 2, outlier=20.0),
    Case(1, 226 + 17, 2, torch.float16, 32, 192, outlier=20.0),
    Case(2, 129, 2, torch.float16, products=MmaKind.HALF_SUMS),
    Case(2, 226 + 17, 2, products=MmaKind.HALF_SUMS),
    Case(1, 1, 1, torch.float16, products=MmaKind.WARPGROUPS),
    Case(1, 64, 2, products=MmaKind.WARPGROUPS),
    Case(2, 129, 2, outlier=20.0, products=MmaKind.WARPGROUPS),
    Case(1, 2 * 192 + 5, 1, torch.float16, 32, 192, outlier=20.0, products=MmaKind.WARPGROUPS),
)
EVERY_LAYOUT = (MmaKind.WARPS, MmaKind.WARPGROUPS)
FULL = Case(2, 6976, 30)


def inputs(case: Case) -> tuple[Tensor, Tensor]:
    """qkv [B, S, 3, heads, 64], and the four vectors of the norms [4, 64]. Keys have a mean over tokens."""
    random = torch.Generator().manual_seed(case.tokens)
    qkv = torch.randn((case.batch, case.tokens, 3, case.heads, WIDTH), generator=random)
    qkv[:, :, 1] += 2 * torch.randn((case.batch, 1, case.heads, WIDTH), generator=random)
    vectors = 1 + 0.3 * torch.randn((4, WIDTH), generator=random)
    vectors[2, 5] *= case.outlier
    return qkv.to(case.dtype), vectors


def quantised(case: Case, operators: Operators) -> tuple[Int8Outputs, Tensor]:
    """Outputs of head_norm_int8, and the values as a view of qkv, on the operators' device."""
    device, library = operators.device, operators.library
    qkv, vectors = (array.to(device) for array in inputs(case))
    given, rows = Heads(qkv, *vectors, HEAD_NORM_EPSILON), (case.batch, case.heads)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    out = Int8Outputs(
        empty(*rows, case.tokens, WIDTH, dtype=torch.int8),
        empty(*rows, case.tokens, WIDTH, dtype=torch.int8),
        empty(*rows, -(-case.tokens // case.query_group)),
        empty(*rows, -(-case.tokens // case.key_group)),
        empty(*rows, WIDTH),
        empty(int8_workspace(library, given), dtype=torch.uint8),
    )
    head_norm_int8(library, given, out, case.query_group, case.key_group)
    return out, qkv[:, :, 2]


def to_device(device: str, heads: Int8Outputs) -> Int8Outputs:
    names = ("query", "key", "query_scales", "key_scales", "key_mean", "workspace")
    return replace(heads, **{name: getattr(heads, name).to(device) for name in names})


def run(case: Case, operators: Operators, heads: Int8Outputs, value: Tensor) -> Tensor:
    out, device = Outputs(operators.device), operators.device
    to = out.new("out", value.shape, case.dtype)
    groups = case.query_group, case.key_group
    attention_int8(operators.library, to_device(device, heads), value.to(device), to, *groups, case.products)
    return out.read()["out"]


def truth(case: Case, heads: Int8Outputs, value: Tensor) -> Tensor:
    """PyTorch's float64 attention of the quantised queries and keys [B, S, heads, 64]."""
    query, key = (
        codes.double() * scales.double().repeat_interleave(group, 2)[:, :, : case.tokens, None]
        for codes, scales, group in (
            (heads.query, heads.query_scales, case.query_group),
            (heads.key, heads.key_scales, case.key_group),
        )
    )
    return functional.scaled_dot_product_attention(query, key, value.double().transpose(1, 2)).transpose(1, 2)


def assert_rounded_weights(case: Case, found: Tensor, expected: Tensor, value: Tensor) -> None:
    """Asserts the error bound of weights rounded to the values' dtype: half an ulp of the largest value.

    With float16 sums there are four more roundings, of the sums and the values.
    """
    assert found.shape == expected.shape and bool(found.isfinite().all())
    step = torch.finfo(case.dtype).eps / 2 + (4 * torch.finfo(torch.float16).eps if case.half_sums else 0)
    allowed = 2 * step * value.double().abs().amax(dim=1, keepdim=True) + 1e-5
    assert bool(((found.double() - expected.double()).abs() <= allowed).all())
    assert relative_error(found, expected) < step


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_result_is_pytorchs_attention_of_the_quantised_heads(
    reference: Operators, operators: Operators, case: Case
) -> None:
    heads, value = quantised(case, reference)
    found, expected = run(case, operators, heads, value), truth(case, heads, value)
    if operators is reference:
        assert_close("out", found, expected)
    else:
        assert_rounded_weights(case, found, expected, value)


def test_nan_scale_makes_nan_of_what_depends_on_it(operators: Operators) -> None:
    case = Case(1, 65, 1, torch.float16, 32, 64)
    heads, value = quantised(case, operators)
    heads.query_scales[0, 0, 1] = float("nan")
    found = run(case, operators, heads, value)
    assert bool(found[0, 32:64].isnan().all())
    assert bool(found[0, :32].isfinite().all()) and bool(found[0, 64:].isfinite().all())
    heads.key_scales[0, 0, 1] = float("nan")
    assert bool(run(case, operators, heads, value).isnan().all())


def extreme(operators: Operators, products: MmaKind, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Results and values of one head with these query and key codes [S]; the weight of 127 by 127 is 2^300."""
    case = Case(1, len(keys), 1, torch.float16, 32, 64, products=products)
    heads, value = quantised(case, operators)
    heads.query.copy_(queries[:, None].expand(-1, WIDTH))
    heads.key.copy_(keys[:, None].expand(-1, WIDTH))
    heads.query_scales.fill_(1.0)
    heads.key_scales.fill_(300 * math.log(2) * 8 / (WIDTH * 127 * 127))
    return run(case, operators, heads, value), value.cpu()


@pytest.mark.parametrize("products", EVERY_LAYOUT, ids=case_id)
def test_one_key_far_above_all_others_has_all_the_weight(operators: Operators, products: MmaKind) -> None:
    # A thread holds one row of the upper eight and one of the lower eight of sixteen: test each with the other at 0.
    upper = torch.arange(70) // 8 % 2 == 0
    for largest, rows in ((0, upper), (1, ~upper), (5, upper), (10, ~upper), (34, upper), (63, ~upper), (69, upper)):
        keys = torch.zeros(70, dtype=torch.int8)
        keys[largest] = 127
        found, value = extreme(operators, products, 127 * rows.to(torch.int8), keys)
        found = found[:, rows.to(found.device)]
        assert torch.equal(found, value[:, largest : largest + 1].expand_as(found)), largest


@pytest.mark.parametrize("products", EVERY_LAYOUT, ids=case_id)
def test_keys_far_below_the_masked_ones_have_equal_weights(operators: Operators, products: MmaKind) -> None:
    codes = torch.full((70,), 127, dtype=torch.int8)
    found, value = extreme(operators, products, codes, -codes)
    expected = value.double().mean(dim=1, keepdim=True)
    assert_rounded_weights(Case(1, 70, 1, torch.float16), found, expected.expand_as(found), value)


HALVES = (
    Case(1, 1, 1, torch.float16),
    Case(1, 64, 2),
    Case(2, 129, 2, outlier=20.0),
    Case(1, 2 * 192 + 5, 1, torch.float16, outlier=20.0),
)
"""Attention without INT8; `products` does not apply."""


def halves(case: Case, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as views of one array [B, S, 3, heads, 64]."""
    qkv, vectors = inputs(case)
    qkv[:, :, :2] *= vectors[2].abs().sqrt().to(case.dtype)
    query, key, value = qkv.to(device).unbind(2)
    return query, key, value


def attend_by_warpgroups(case: Case, operators: Operators, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    out = Outputs(operators.device)
    attention(operators.library, query, key, value, out.new("out", value.shape, case.dtype))
    return out.read()["out"]


def exact_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    heads = (part.double().transpose(1, 2) for part in (query, key, value))
    return functional.scaled_dot_product_attention(*heads).transpose(1, 2).cpu()


@pytest.mark.parametrize("case", HALVES, ids=lambda case: f"{case_id(case)}-warpgroups")
def test_attention_without_int8_is_pytorchs(operators: Operators, reference: Operators, case: Case) -> None:
    given = halves(case, operators.device)
    found, expected = attend_by_warpgroups(case, operators, *given), exact_attention(*given)
    if operators is reference:
        assert_close("out", found, expected)
    else:
        assert_rounded_weights(case, found, expected, given[2].cpu())


@pytest.mark.parametrize("largest", [0, 1, 63, 69], ids=lambda key: f"{key}-warpgroups")
def test_key_far_above_all_others_has_all_the_weight_without_int8(operators: Operators, largest: int) -> None:
    case = Case(1, 70, 1, torch.float16)
    query, key, value = (part.clone() for part in halves(case, operators.device))
    query.fill_(1.0)
    key.fill_(-30.0)
    key[:, largest] = 30.0
    found = attend_by_warpgroups(case, operators, query, key, value)
    assert torch.equal(found, value[:, largest : largest + 1].expand_as(value).cpu())
    query[:, 5, 0, 7] = float("nan")
    found = attend_by_warpgroups(case, operators, query, key, value)
    assert bool(found[:, 5].isnan().all()) and bool(found[:, :5].isfinite().all())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["warpgroups"])
def test_full_size_attention_without_int8_agrees_with_pytorch_head_by_head(gpu: Operators, kind: str) -> None:
    given = halves(FULL, "cuda")
    found = attend_by_warpgroups(FULL, gpu, *given)
    for head in (0, FULL.heads - 1):
        of_head = [part[:, :, head : head + 1] for part in given]
        one = found[:, :, head : head + 1]
        assert_rounded_weights(FULL, one, exact_attention(*of_head), of_head[2].cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("products", MmaKind, ids=case_id)
def test_full_size_kernel_agrees_with_pytorch_head_by_head(gpu: Operators, products: MmaKind) -> None:
    full = replace(FULL, products=products)
    heads, value = quantised(full, gpu)
    found = run(full, gpu, heads, value)
    for head in (0, full.heads - 1):
        one = replace(full, heads=1)
        part = Int8Outputs(
            *(getattr(heads, name)[:, head : head + 1] for name in ("query", "key", "query_scales", "key_scales")),
            heads.key_mean,
            heads.workspace,
        )
        of_head = value[:, :, head : head + 1]
        expected = truth(one, part, of_head).cpu()
        assert_rounded_weights(one, found[:, :, head : head + 1], expected, of_head.cpu())
