"""Opens a bundle's engines by the name of a device; a library is imported when it is chosen, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..errors import BackendError

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


def open_engines(bundle: Bundle, device: str = "cpu", loaded: Loaded | None = None) -> Engines:
    """The engines of one of DEVICES. Raises BackendError when library, device or memory is not there.

    loaded: what an earlier bundle left loaded on this device; onnxruntime takes from it and renews it, the others load
    everything.
    """
    if device in TORCH:
        try:
            from . import torch
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise BackendError("PyTorch is not installed", do="run: pip install 'torch>=2.9'") from error
        return torch.open_engines(bundle, TORCH[device])
    if device == "tensorrt":
        from . import tensorrt

        return tensorrt.open_engines(bundle)
    from . import onnxruntime

    return onnxruntime.open_engines(
        bundle, device.removesuffix("-fp32"), loaded=loaded, eight_bit=device in IN_EIGHT_BITS
    )
