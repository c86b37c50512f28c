"""Invalid arguments: status codes and texts. Reference and kernel refuse the same, even without a GPU."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from kernel_arguments import set_field, valid_arguments
from torch import Tensor

from animegamer_kernels import KernelError, Library, attention, epilogue, norm_modulate, packed_product
from animegamer_kernels.arrays import Dtype
from animegamer_kernels.library import OPERATORS, Status

REFUSED = (
    ("norm_modulate", "x", None, Status.NULL_POINTER, "x is missing"),
    ("norm_modulate", "norm.epsilon", 0.0, Status.BAD_SHAPE, "epsilon"),
    ("norm_modulate", "shape.dtype", Dtype.I8, Status.BAD_DTYPE, "dtype 4"),
    ("norm_modulate", "shape.rows", 3, Status.BAD_SHAPE, "multiple of tokens"),
    ("norm_modulate", "norm.shot", None, Status.NULL_POINTER, "norm.shot is missing"),
    ("norm_modulate", "shape.width", 9, Status.UNALIGNED_WIDTH, "36 bytes"),
    ("norm_modulate", "shape.width", 4100, Status.TOO_WIDE, "at most 16384"),
    ("gate_residual", "image_gate", None, Status.NULL_POINTER, "*_gate"),
    ("epilogue", "width", 9, Status.UNALIGNED_WIDTH, "36 bytes"),
    ("unpack", "weight.bits", 2, Status.BAD_DTYPE, "bits 2: expected 4 or 8"),
    ("unpack", "weight.block", 12, Status.BAD_SHAPE, "multiple of block"),
    ("unpack", "weight.block", 4, Status.UNALIGNED_WIDTH, "block 4 of 4 bits: expected a multiple of 8"),
    ("packed_product", "rows", 5, Status.BAD_SHAPE, "rows 5: expected 1 to 4"),
    ("packed_product", "weight.inputs", 2**32, Status.TOO_WIDE, "2^31"),
    ("guided_step", "batch", 3, Status.BAD_SHAPE, "batch 3"),
    ("noise", "draws", 1001, Status.BAD_SHAPE, "draws 1001: expected 0 to 1000"),
    ("noise", "count", 0, Status.BAD_SHAPE, "a positive count"),
    ("noise", "weights", None, Status.NULL_POINTER, "weights is missing"),
    ("head_norm", "head_width", 256, Status.TOO_WIDE, "at most 512"),
    ("attention", "head_width", 128, Status.BAD_SHAPE, "head_width 128: expected 64"),
    ("attention", "dtype", Dtype.F32, Status.BAD_DTYPE, "dtype 0: expected AGK_F16 or AGK_BF16"),
    ("pixels", "width", 12, Status.UNALIGNED_WIDTH, "multiple of 8"),
    ("pixels", "order", (ctypes.c_int32 * 4)(0, 1, 2, 4), Status.BAD_SHAPE, "order[3] is 4"),
    ("spatial_norm", "latent_frames", 1, Status.BAD_SHAPE, "multiples of the latent"),
    ("spatial_norm", "latent_width", 3, Status.BAD_SHAPE, "multiples of the latent"),
    ("spatial_norm", "workspace_bytes", 100, Status.SMALL_WORKSPACE, "expected 8208"),
)


@pytest.mark.parametrize("name", OPERATORS)
def test_valid_arguments_are_taken_and_wrong_ones_refused_by_name(library: Library, name: str) -> None:
    assert library.call(name, valid_arguments(name), None) == Status.OK
    # A kernel checks its arguments before it looks for a GPU, so this holds on any machine.
    streams = (None, 0) if library.has_cuda else (None,)
    for field, value, code, words in (row for of, *row in REFUSED if of == name):
        arguments = valid_arguments(name)
        set_field(arguments, field, value)
        for stream in streams:
            assert library.call(name, arguments, stream) == code, f"{field}: {value}"
            assert library.last_error().startswith(name) and words in library.last_error()
    other_version = valid_arguments(name)
    other_version.struct_bytes += 8
    assert library.call_unchecked(name, other_version, None) == Status.BAD_STRUCT


def test_kernel_without_a_gpu_returns_an_error(library: Library) -> None:
    # In its own process: a GPU can be hidden only before CUDA starts.
    script = f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from animegamer_kernels import open_library
from kernel_arguments import SIZES, valid_arguments
library = open_library(Path({str(library.path)!r}))
assert not library.runs_here
for name in SIZES:
    print(library.call(name, valid_arguments(name), 0), library.last_error())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True
    )
    answers = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert len(answers) == len(OPERATORS), done.stderr
    for name, (code, words) in zip(OPERATORS, answers, strict=True):
        if library.has_cuda:
            assert int(code) > Status.CUDA_ERROR and words.startswith(f"{name}: CUDA: ")
        else:
            assert int(code) == Status.NO_CUDA and words.startswith(name) and "nvcc" in words


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


I8, SHAPE, DTYPE = torch.int8, "wrong shape", "wrong dtype"
X, ROWS, VECTOR = zeros(1, 2, 8), zeros(2, 8), zeros(8)
QKV = zeros(1, 65, 3, 2, 72, dtype=torch.float16)[..., :64]
modulate = partial(norm_modulate, x=X, weight=VECTOR, bias=VECTOR, epsilon=1e-5, shot=None, image=None, shot_tokens=0)
unscaled = partial(epilogue, row_scales=None, column_scales=None, bias=None, gelu=False)
product = partial(packed_product, codes=zeros(3, 2, 4, dtype=I8), four_bits=True, x=zeros(2, 16), out=zeros(2, 3))
MISFITS: tuple[tuple[str, Callable[..., None]], ...] = (
    (f"out: {SHAPE}", partial(modulate, out=zeros(1, 2, 16))),
    (f"weight: {DTYPE}", partial(modulate, weight=VECTOR.half(), out=X)),
    ("out: on a different device", partial(modulate, out=torch.empty(1, 2, 8, device="meta"))),
    ("unsupported dtype", partial(modulate, x=X.double(), out=X)),
    (f"shot: {SHAPE}", partial(modulate, shot=VECTOR, out=X)),
    ("out_scales is missing", partial(unscaled, x=ROWS, out=ROWS.to(I8))),
    (f"scales: {SHAPE}", partial(product, scales=zeros(3, 1, 1))),
    ("qkv: wrong shape.*strides", partial(attention, qkv=QKV, out=QKV[:, :, 0])),
)


def test_array_that_does_not_fit_is_refused_by_name(library: Library) -> None:
    for words, call in MISFITS:
        with pytest.raises(KernelError, match=words):
            call(library)
