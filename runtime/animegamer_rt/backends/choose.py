"""Opens a bundle's engines by the name of a device; a library is imported when it is chosen, and only then."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..errors import BackendError, ConfigError

if TYPE_CHECKING:
    from ..bundle import Bundle
    from .contract import Engines, Loaded

DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "onnxruntime on the CPU, in 8-bit integers where the bundle brings them",
        "cpu-fp32": "onnxruntime on the CPU, in float32",
        "cuda": "onnxruntime on CUDA",
        "tensorrt": "built TensorRT engines",
        "torch": "PyTorch on an NVIDIA GPU",
        "torch-cpu": "PyTorch on the CPU, to check the former",
    }
)
TORCH: Mapping[str, str] = MappingProxyType({"torch": "cuda", "torch-cpu": "cpu"})

IN_EIGHT_BITS = ("cpu",)
"""Devices on which a part is played by its `int8_file`, if it has one."""

PRECISIONS: Mapping[str, str] = MappingProxyType(
    {
        "bf16": "sm_80 and later",
        "fp16": "any",
        "fp8": "the denoiser's large products in FP8, sm_89 and later",
        "int8": "the same in INT8, sm_80 and later",
    }
)
"""What PyTorch can be told to compute in, and on which GPUs. Everywhere else the bundle says it."""


def add_precision(command: argparse.ArgumentParser) -> None:
    """The option of every command that opens engines; `check_precision` says where it makes sense."""
    said = "; ".join(f"{name}: {words}" for name, words in PRECISIONS.items())
    own = "bf16 where the GPU has it, float32 on the CPU"
    command.add_argument("--precision", choices=tuple(PRECISIONS), help=f"of PyTorch alone: {said} (default: {own})")


def check_precision(device: str, precision: str | None) -> None:
    """Raises ConfigError for a precision that was asked of engines which cannot be told one."""
    if precision is None or device in TORCH:
        return
    raise ConfigError(
        "a precision can be chosen for PyTorch alone",
        found=f"--precision {precision} for {device}",
        expected=f"{' or '.join(TORCH)}",
        do="leave it out, or quantise the bundle: animegamer-rt quantize",
    )


def open_engines(
    bundle: Bundle, device: str = "cpu", loaded: Loaded | None = None, precision: str | None = None
) -> Engines:
    """The engines of one of DEVICES. Raises BackendError when library, device or memory is not there.

    loaded: what an earlier bundle left loaded on this device; onnxruntime takes from it and renews it, the others load
    everything. precision: one of PRECISIONS, or None for the engines' own choice; see `check_precision`.
    """
    check_precision(device, precision)
    if device in TORCH:
        try:
            from . import torch
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise BackendError("PyTorch is not installed", do="run: pip install 'torch>=2.9'") from error
        return torch.open_engines(bundle, TORCH[device], precision)
    if device == "tensorrt":
        from . import tensorrt

        return tensorrt.open_engines(bundle)
    from . import onnxruntime

    return onnxruntime.open_engines(
        bundle, device.removesuffix("-fp32"), loaded=loaded, eight_bit=device in IN_EIGHT_BITS
    )
