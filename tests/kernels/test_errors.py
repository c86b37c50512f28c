"""What the operators refuse, by code and in words: reference and kernel alike, with no GPU at hand too."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from animegamer_kernels import (
    KernelError,
    Library,
    Norm,
    StepOutputs,
    gate_residual,
    guided_step,
    norm_modulate,
    open_library,
)
from animegamer_kernels.arrays import Dtype
from animegamer_kernels.library import OPERATORS, PATH_VARIABLE, Status
from kernel_arguments import AT, valid
from kernel_results import Kernels

REFUSED = (
    ("norm_modulate", "x", None, Status.NULL_POINTER, "x is missing"),
    ("norm_modulate", "x", AT + 4, Status.UNALIGNED_POINTER, "expected a multiple of 16"),
    ("norm_modulate", "norm.out", None, Status.NULL_POINTER, "norm.out"),
    ("norm_modulate", "norm.bias", None, Status.NULL_POINTER, "norm.bias"),
    ("norm_modulate", "norm.shot_scale", None, Status.NULL_POINTER, "norm.*_scale"),
    ("norm_modulate", "norm.epsilon", 0.0, Status.BAD_SHAPE, "epsilon"),
    ("norm_modulate", "norm.out_dtype", Dtype.BF16, Status.BAD_DTYPE, "out_dtype 2"),
    ("norm_modulate", "shape.dtype", Dtype.I8, Status.BAD_DTYPE, "dtype 4"),
    ("norm_modulate", "shape.rows", 0, Status.BAD_SHAPE, "rows 0"),
    ("norm_modulate", "shape.rows", 3, Status.BAD_SHAPE, "multiple of tokens"),
    ("norm_modulate", "shape.shot_tokens", 3, Status.BAD_SHAPE, "shot_tokens 3"),
    ("norm_modulate", "shape.modulation_stride", 6, Status.BAD_SHAPE, "modulation_stride 6"),
    ("norm_modulate", "shape.width", 9, Status.UNALIGNED_WIDTH, "36 bytes"),
    ("norm_modulate", "shape.width", 4100, Status.TOO_WIDE, "at most 16384"),
    ("gate_residual", "branch", None, Status.NULL_POINTER, "branch"),
    ("gate_residual", "image_gate", None, Status.NULL_POINTER, "*_gate"),
    ("gate_residual", "norm.out_dtype", Dtype.F16, Status.BAD_DTYPE, "out_dtype 1"),
    ("epilogue", "rows", 0, Status.BAD_SHAPE, "rows 0"),
    ("epilogue", "dtype", Dtype.I8, Status.BAD_DTYPE, "dtype 4"),
    ("epilogue", "width", 9, Status.UNALIGNED_WIDTH, "36 bytes"),
    ("epilogue", "width", 4100, Status.TOO_WIDE, "at most 16384"),
    ("epilogue", "bias", None, Status.NULL_POINTER, "bias is missing"),
    ("epilogue", "row_scales", AT + 4, Status.UNALIGNED_POINTER, "row_scales"),
    ("epilogue", "out", None, Status.NULL_POINTER, "out is missing"),
    ("epilogue", "out_dtype", Dtype.BF16, Status.BAD_DTYPE, "out_dtype 2"),
    ("unpack", "dtype", Dtype.E4M3, Status.BAD_DTYPE, "dtype 3"),
    ("unpack", "weight.bits", 2, Status.BAD_DTYPE, "bits 2: expected 4 or 8"),
    ("unpack", "weight.block", 12, Status.BAD_SHAPE, "multiple of block"),
    ("unpack", "weight.block", 4, Status.UNALIGNED_WIDTH, "block 4 of 4 bits: expected a multiple of 8"),
    ("unpack", "weight.outputs", 0, Status.BAD_SHAPE, "outputs 0"),
    ("unpack", "weight.codes", AT + 4, Status.UNALIGNED_POINTER, "weight.codes"),
    ("unpack", "out", None, Status.NULL_POINTER, "out is missing"),
    ("packed_product", "rows", 5, Status.BAD_SHAPE, "rows 5: expected 1 to 4"),
    ("packed_product", "rows", 0, Status.BAD_SHAPE, "rows 0"),
    ("packed_product", "weight.inputs", 2**32, Status.TOO_WIDE, "2^31"),
    ("packed_product", "weight.scales", None, Status.NULL_POINTER, "weight.scales is missing"),
    ("packed_product", "x", None, Status.NULL_POINTER, "x is missing"),
    ("guided_step", "batch", 3, Status.BAD_SHAPE, "batch 3"),
    ("guided_step", "width", 3, Status.BAD_SHAPE, "width 3"),
    ("guided_step", "channels", 0, Status.BAD_SHAPE, "channels 0"),
    ("guided_step", "dtype", Dtype.E4M3, Status.BAD_DTYPE, "dtype 3"),
    ("guided_step", "coefficients", None, Status.NULL_POINTER, "coefficients"),
    ("head_norm", "query", None, Status.NULL_POINTER, "query"),
    ("head_norm", "shape.head_width", 12, Status.UNALIGNED_WIDTH, "48 bytes"),
    ("head_norm", "shape.head_width", 256, Status.TOO_WIDE, "at most 512"),
    ("head_norm", "shape.tokens", 0, Status.BAD_SHAPE, "tokens 0"),
    ("head_norm", "token_stride", 18, Status.BAD_SHAPE, "stride of 18"),
    ("head_norm_int8", "key_group", 0, Status.BAD_SHAPE, "0 tokens"),
    ("head_norm_int8", "workspace_bytes", 63, Status.SMALL_WORKSPACE, "expected 64"),
    ("head_norm_int8", "key_mean", AT + 4, Status.UNALIGNED_POINTER, "key_mean"),
    ("attention_int8", "dtype", Dtype.F32, Status.BAD_DTYPE, "AGK_F16 or AGK_BF16"),
    ("attention_int8", "head_width", 128, Status.BAD_SHAPE, "head_width 128: expected 64"),
    ("attention_int8", "tokens", 0, Status.BAD_SHAPE, "tokens 0"),
    ("attention_int8", "key_group", 32, Status.BAD_SHAPE, "32 keys: expected a positive multiple of 64"),
    ("attention_int8", "query_group", 0, Status.BAD_SHAPE, "0 tokens"),
    ("attention_int8", "products", 3, Status.BAD_OPTION, "products 3"),
    ("attention_int8", "token_stride", 388, Status.BAD_SHAPE, "stride of 388"),
    ("attention_int8", "value", AT + 8, Status.UNALIGNED_POINTER, "value"),
    ("attention_int8", "key_scales", None, Status.NULL_POINTER, "key_scales is missing"),
    ("pixels", "width", 12, Status.UNALIGNED_WIDTH, "multiple of 8"),
    ("pixels", "out_channels", 2, Status.BAD_SHAPE, "out_channels 2"),
    ("pixels", "order", (ctypes.c_int32 * 4)(0, 1, 2, 4), Status.BAD_SHAPE, "order[3] is 4"),
    ("spatial_norm", "groups", 4, Status.UNALIGNED_WIDTH, "4 groups"),
    ("spatial_norm", "latent_frames", 1, Status.BAD_SHAPE, "apart"),
    ("spatial_norm", "height", 0, Status.BAD_SHAPE, "size of 0"),
    ("spatial_norm", "latent_width", 3, Status.BAD_SHAPE, "multiples of the latent"),
    ("spatial_norm", "channels", 8192, Status.TOO_WIDE, "32768 bytes"),
    ("spatial_norm", "workspace_bytes", 100, Status.SMALL_WORKSPACE, "expected 8208"),
    ("guided_step", "next_patches", AT + 8, Status.UNALIGNED_POINTER, "next_patches"),
)


@pytest.mark.parametrize(
    ("name", "field", "value", "code", "words"),
    REFUSED,
    # No addresses among the names: two processes that share the tests must find the same ones.
    ids=[f"{name}-{field}-{code.name}-{number}" for number, (name, field, _, code, _) in enumerate(REFUSED)],
)
def test_wrong_argument_is_refused(
    library: Library, name: str, field: str, value: object, code: Status, words: str
) -> None:
    arguments = valid(name)
    *path, last = field.split(".")
    holder: object = arguments
    for step in path:
        holder = getattr(holder, step)
    setattr(holder, last, value)
    # A kernel looks at its arguments before it looks for a GPU, so this holds on any machine.
    for stream in (None, 0) if library.has_cuda else (None,):
        assert library.call(name, arguments, stream) == code
        assert library.last_error().startswith(name) and words in library.last_error()


@pytest.mark.parametrize("name", OPERATORS)
def test_valid_arguments_are_taken_and_another_versions_struct_is_not(library: Library, name: str) -> None:
    arguments = valid(name)
    assert library.call(name, arguments, None) == Status.OK
    arguments.struct_bytes += 8
    assert library.call_unchecked(name, arguments, None) == Status.BAD_STRUCT


def test_kernel_without_a_gpu_says_so(library: Library) -> None:
    # In a process of its own, because only before CUDA starts can a GPU be hidden.
    script = f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from animegamer_kernels import open_library
from kernel_arguments import OPERATORS, valid
library = open_library(Path({str(library.path)!r}))
assert not library.runs_here
for name in OPERATORS:
    print(library.call(name, valid(name), 0), library.last_error())
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


def test_every_code_has_a_text_of_its_own(library: Library) -> None:
    texts = {library.error_text(code) for code in Status}
    assert len(texts) == len(Status) and "an unknown code" not in texts
    assert library.error_text(999) == "an unknown code"


def test_arrays_that_do_not_fit_are_refused_by_name(library: Library) -> None:
    x = torch.zeros(1, 2, 8)
    table = torch.zeros(2, 8)
    latent = torch.zeros(1, 1, 4, 2, 2)
    out = StepOutputs(latent, latent, latent)
    with pytest.raises(KernelError, match="out: an array of another shape"):
        norm_modulate(library, x, Norm(torch.zeros(1, 2, 16), 1e-5), 0)
    with pytest.raises(KernelError, match="out: an array of another shape.*contiguous"):
        norm_modulate(library, x, Norm(torch.zeros(1, 2, 16)[..., ::2], 1e-5), 0)
    with pytest.raises(KernelError, match="weight: an array of another dtype"):
        norm_modulate(library, x, Norm(x, 1e-5, weight=torch.zeros(8).half(), bias=torch.zeros(8)), 0)
    with pytest.raises(KernelError, match="image_gate: an array of another shape"):
        gate_residual(library, x, x, torch.zeros(16), None, x, 0)
    with pytest.raises(KernelError, match="a dtype that no kernel takes"):
        norm_modulate(library, x.double(), Norm(x, 1e-5), 0)
    with pytest.raises(KernelError, match="one stride"):
        both = x.expand(2, 2, 8).contiguous()
        gate_residual(library, both, both, table, table[0], both, 1)
    with pytest.raises(KernelError, match="patches: an array of another shape"):
        guided_step(library, torch.zeros(1, 2, 16), latent, latent, latent, latent, torch.zeros(8), out)
    with pytest.raises(KernelError, match=r"UNALIGNED|code 6"):
        norm_modulate(library, torch.zeros(1, 2, 9), Norm(torch.zeros(1, 2, 9), 1e-5), 0)


def test_missing_or_foreign_library_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "gone.so"))
    with pytest.raises(KernelError, match=r"gone\.so.*make kernels"):
        open_library()
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(KernelError, match="make kernels"):
        open_library(tmp_path / "text.so")


def test_emulated_cuda_stays_within_its_library(emulated: Kernels) -> None:
    with pytest.raises(AttributeError):
        ctypes.CDLL(str(emulated.library.path)).cudaGetLastError  # noqa: B018
