"""Which engines play a bundle, and how: one configuration for commands, the server and its worker.

Imports no backend library, so that the server process can hold it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from .bundle.config import suggest_only
from .errors import ConfigError


class Device(NamedTuple):
    """A device that runs networks. kind: library and kind of device, as sessions store it; plays: for help."""

    kind: str
    plays: str


DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        "cpu": Device("onnxruntime on the CPU", "onnxruntime on the CPU, in 8 bits if the bundle has 8-bit parts"),
        "cpu-fp32": Device("onnxruntime on the CPU", "onnxruntime on the CPU, in float32"),
        "cuda": Device("onnxruntime on CUDA", "onnxruntime on CUDA"),
        "tensorrt": Device("TensorRT", "TensorRT engines, once built"),
        "rtx": Device(
            "onnxruntime on TensorRT-RTX", "NVIDIA's TensorRT-RTX plugin of onnxruntime, once its graphs are written"
        ),
        "torch": Device("PyTorch on CUDA", "PyTorch on an NVIDIA GPU"),
        "torch-cpu": Device("PyTorch on the CPU", "PyTorch on the CPU, for checking torch"),
    }
)

SIMULATED = "simulated:SECONDS"
"""Engines that render no picture and take SECONDS for a turn of the bundle's default plan."""
_SIMULATED = re.compile(r"simulated:(\d+(?:\.\d+)?)")

_FRAME_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")
MIN_SIDE, MAX_SIDE = 16, 4096
"""Pixels of a frame's side that simulated engines may have: 4096 x 4096 in RGBA is the largest buffer of a message."""

TORCH_DEVICES = ("torch", "torch-cpu")
INT8_DEVICES = ("cpu",)
"""Devices that run a part's `int8_file` if it has one."""
ONNXRUNTIME_DEVICES = ("cpu", "cpu-fp32", "cuda")
"""Devices with a configurable number of CPU threads."""
CPU_DEVICES = ("cpu", "cpu-fp32", "torch-cpu")
GPU_DEVICES = ("cuda", "tensorrt", "rtx", "torch")
MAX_THREADS = 1024

PRECISIONS: Mapping[str, str] = MappingProxyType(
    {
        "bf16": "sm_80 and later",
        "fp16": "any GPU",
        "fp32": "any GPU",
        "fp8": "FP8 for the denoiser's large products, sm_89 and later",
        "int8": "INT8 for the denoiser's large products, sm_80 and later",
    }
)
"""PyTorch's precisions, and the GPUs that have them. On other devices the bundle decides."""

ATTENTIONS: Mapping[str, str] = MappingProxyType(
    {
        "torch": "PyTorch's choice",
        "wgmma": "our kernel for H100 and H200",
    }
)
"""Attention implementations of PyTorch's denoiser."""


def _arguments(options: Mapping[str, str | None]) -> list[str]:
    return [word for option, value in options.items() if value is not None for word in (option, value)]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Where and how a bundle's parts run.

    device: one of DEVICES, or "simulated:SECONDS".
    precision, attention: only for PyTorch, one of PRECISIONS and of ATTENTIONS; None: PyTorch's own choice.
    threads: CPU threads of onnxruntime; None: one per core that this process may use.
    frame_size: only for simulated engines, "WIDTHxHEIGHT" in pixels; None: the bundle's.

    Raises ConfigError for an unknown device, or a choice that the device does not have.
    """

    device: str = "cpu"
    precision: str | None = None
    attention: str | None = None
    threads: int | None = None
    frame_size: str | None = None

    def __post_init__(self) -> None:
        texts = ("device", "precision", "attention", "frame_size")
        for name, kind in (*((name, str) for name in texts), ("threads", int)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind) and (value is not None or name == "device"):
                raise ConfigError("wrong type of value", where=name, found=f"{value!r:.60}", expected=kind.__name__)
        if self.device not in DEVICES and not _SIMULATED.fullmatch(self.device):
            raise ConfigError(
                "unknown device",
                found=repr(self.device),
                expected=", ".join((*DEVICES, SIMULATED)),
                do=suggest_only(self.device, DEVICES),
            )
        for name, known in (("precision", PRECISIONS), ("attention", ATTENTIONS)):
            value = getattr(self, name)
            if value is not None and value not in known:
                expected, do = ", ".join(known), suggest_only(value, known)
                raise ConfigError(f"unknown {name}", found=repr(value), expected=expected, do=do)
        asked = _arguments({"--precision": self.precision, "--attention": self.attention})
        if asked and self.device not in TORCH_DEVICES:
            raise ConfigError(
                "precision and attention can only be set for PyTorch",
                found=f"{' '.join(asked)} for {self.device}",
                expected=" or ".join(TORCH_DEVICES),
                do="omit them; animegamer-rt quantize makes a bundle of another precision",
            )
        self._check_frame_size()
        if self.threads is None:
            return
        if self.device not in ONNXRUNTIME_DEVICES:
            raise ConfigError(
                "threads can only be set for onnxruntime",
                found=f"--threads {self.threads} for {self.device}",
                expected=", ".join(ONNXRUNTIME_DEVICES),
                do="omit --threads",
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise ConfigError("out of range", where="--threads", found=self.threads, expected=f"1 to {MAX_THREADS}")

    def _check_frame_size(self) -> None:
        if self.frame_size is None:
            return
        found = _FRAME_SIZE.fullmatch(self.frame_size)
        if found is None or not all(MIN_SIDE <= int(side) <= MAX_SIDE for side in found.groups()):
            expected = f"WIDTHxHEIGHT in pixels, {MIN_SIDE} to {MAX_SIDE} each, for example 720x480"
            raise ConfigError("not a frame size", where="--frame-size", found=repr(self.frame_size), expected=expected)
        if not self.simulated:
            do = f"omit it, or use --device {SIMULATED}"
            raise ConfigError("only simulated engines have frames of any size", found=f"--device {self.device}", do=do)

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> EngineConfig:
        """The configuration in the options of `add_engine_options`. Raises ConfigError."""
        size = getattr(arguments, "frame_size", None)
        return cls(arguments.device, arguments.precision, arguments.attention, arguments.threads, size)

    def to_args(self) -> list[str]:
        """The options that give this configuration to another process."""
        threads = None if self.threads is None else str(self.threads)
        options = {"--precision": self.precision, "--attention": self.attention, "--threads": threads}
        options["--frame-size"] = self.frame_size
        return ["--device", self.device, *_arguments(options)]

    @property
    def simulated(self) -> bool:
        return self.device not in DEVICES

    @property
    def width_height(self) -> tuple[int, int] | None:
        """The size of simulated frames in pixels; None: the bundle's."""
        if self.frame_size is None:
            return None
        width, height = self.frame_size.split("x")
        return int(width), int(height)

    @property
    def kind(self) -> str:
        """Library and kind of device, as stored sessions name them."""
        return DEVICES[self.device].kind if self.device in DEVICES else "simulated engines"

    @property
    def simulated_seconds(self) -> float:
        """Seconds that simulated engines take for a turn of the bundle's default plan."""
        found = _SIMULATED.fullmatch(self.device)
        assert found is not None, "asked of engines that compute"
        return float(found[1])


DEFAULT_CONFIG = EngineConfig()


BUNDLE = "name or folder"
BUNDLE_HELP = f"{BUNDLE} (default: pocket)"


def add_bundle_options(command: argparse.ArgumentParser, *, plan: bool = True) -> None:
    """Add `--bundle`, and `--plan` unless the command does not play a chosen plan."""
    command.add_argument("--bundle", default="pocket", help=BUNDLE_HELP)
    if plan:
        command.add_argument("--plan", help="exact, balanced, fast or turbo (default: the bundle's default)")


def add_engine_options(command: argparse.ArgumentParser, *, simulated: bool = False) -> None:
    """Add the options of commands that open engines; `EngineConfig.from_arguments` reads them.

    simulated: the command also accepts simulated engines.
    """
    known = {name: device.plays for name, device in DEVICES.items()}
    if simulated:
        known[SIMULATED] = "no pictures; a turn takes this long, for testing a client"
    add = command.add_argument
    add(
        "--device",
        choices=None if simulated else tuple(DEVICES),
        default=DEFAULT_CONFIG.device,
        metavar="DEVICE",
        help=f"{_choices(known)} (default: {DEFAULT_CONFIG.device})",
    )
    add(
        "--precision",
        choices=tuple(PRECISIONS),
        help=f"only for PyTorch: {_choices(PRECISIONS)} (default: bf16 if the GPU has it, float32 on the CPU)",
    )
    add(
        "--attention",
        choices=tuple(ATTENTIONS),
        help=f"only for PyTorch: {_choices(ATTENTIONS)} (default: torch)",
    )
    add("--threads", type=int, metavar="N", help="only for onnxruntime: CPU threads (default: one per core)")
    if simulated:
        add(
            "--frame-size",
            metavar="WIDTHxHEIGHT",
            help="only for simulated:SECONDS (default: the bundle's)",
        )


def _choices(choices: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {meaning}" for name, meaning in choices.items())
