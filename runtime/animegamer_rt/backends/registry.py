"""Opens a bundle's engines by the name of a device; a library is imported when it is chosen, and only then."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from animegamer_rt.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from animegamer_rt.bundle.loader import Bundle

    from .interface import Engines, PartCache

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

INT8_DEVICES = ("cpu",)
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

ATTENTIONS: Mapping[str, str] = MappingProxyType(
    {
        "torch": "PyTorch's own choice",
        "cudnn": "cuDNN's",
        "flash": "FlashAttention",
        "efficient": "the memory-efficient one",
        "int8": "ours with INT8 scores, sm_80 and later",
        "int8-wgmma": "the same by instructions of sm_90 alone",
        "fastest": "what is fastest of these and right, timed when the engines are opened",
    }
)
"""How PyTorch's denoiser can be told to attend. All but its own choice come with our kernels."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What PyTorch alone can be told: one of PRECISIONS, one of ATTENTIONS, each by the name of its option.

    None is PyTorch's own choice.
    """

    precision: str | None = None
    attention: str | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> EngineConfig:
        """What was asked with the options of `add_torch_options`."""
        return cls(arguments.precision, arguments.attention)

    def words(self) -> list[str]:
        """As a command line says it."""
        return [word for name, told in asdict(self).items() if told for word in (f"--{name}", told)]

    def check(self, device: str) -> None:
        """Raises ConfigError when something was asked of engines that cannot be told it."""
        if device not in TORCH and self.words():
            raise ConfigError(
                "precision and attention can be chosen for PyTorch alone",
                found=f"{' '.join(self.words())} for {device}",
                expected=f"{' or '.join(TORCH)}",
                do="leave them out; animegamer-rt quantize makes a bundle of another precision",
            )


DEFAULT_CONFIG = EngineConfig()


def add_torch_options(command: argparse.ArgumentParser) -> None:
    """The options of every command that opens engines; `EngineConfig.check` says where they make sense."""
    precisions, attentions = (
        "; ".join(f"{name}: {words}" for name, words in choices.items()) for choices in (PRECISIONS, ATTENTIONS)
    )
    own = "bf16 where the GPU has it, float32 on the CPU"
    which = "of PyTorch alone, all but torch with our kernels"
    add = command.add_argument
    add("--precision", choices=tuple(PRECISIONS), help=f"of PyTorch alone: {precisions} (default: {own})")
    add("--attention", choices=tuple(ATTENTIONS), help=f"{which}: {attentions} (default: torch)")


def open_engines(
    bundle: Bundle, device: str = "cpu", loaded: PartCache | None = None, for_torch: EngineConfig = DEFAULT_CONFIG
) -> Engines:
    """The engines of one of DEVICES. Raises BackendError when library, device or memory is not there.

    loaded: what an earlier bundle left loaded on this device; onnxruntime takes from it and renews it, the others load
    everything. Raises ConfigError when something is asked `for_torch` of another device.
    """
    for_torch.check(device)
    if device in TORCH:
        try:
            from .torch import loader as torch
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise BackendError("PyTorch is not installed", do="run: pip install 'torch>=2.9'") from error
        return torch.open_engines(bundle, TORCH[device], for_torch.precision, attention=for_torch.attention or "torch")
    if device == "tensorrt":
        from .tensorrt import loader as tensorrt

        return tensorrt.open_engines(bundle)
    from . import onnxruntime

    return onnxruntime.open_engines(
        bundle, device.removesuffix("-fp32"), loaded=loaded, eight_bit=device in INT8_DEVICES
    )
