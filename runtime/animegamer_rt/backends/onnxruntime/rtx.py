"""NVIDIA's TensorRT-RTX plugin for onnxruntime: its registration, and sessions that run on the card alone.

**No card has run it yet.** Without one, the library was registered and refused, and its parser took the graphs.
Written from NVIDIA's documentation of onnxruntime-ep-nv-tensorrt-rtx 0.5.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime

from animegamer_rt.backends.tensorrt.runtime_cache import cache_folder
from animegamer_rt.bundle.roles import DENOISER, VAE
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling.libraries import RTX_PLUGIN
from animegamer_rt.profiling.nvml import open_nvml

FIXED_SHAPES = (DENOISER, VAE)
"""Roles whose inputs keep their shapes from turn to turn, so that a CUDA graph of them can be replayed."""
USE_ANOTHER = "or use --device tensorrt, cuda or cpu"


@functools.cache
def card() -> Any:
    """The plugin's device, registered once a process. Raises BackendError without a driver or an RTX card."""
    plugin = importlib.import_module(RTX_PLUGIN)
    name = plugin.get_ep_name()
    try:
        onnxruntime.register_execution_provider_library(name, plugin.get_library_path())
    except Exception as error:
        do = f"install NVIDIA's driver for an RTX card, {USE_ANOTHER}"
        raise BackendError("TensorRT-RTX's plugin cannot be loaded", found=str(error), do=do) from error
    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    if not found:
        raise BackendError(
            "TensorRT-RTX's plugin finds no card that it can use",
            found=", ".join(sorted({device.ep_name for device in onnxruntime.get_ep_devices()})),
            expected="an RTX card of the series 30, 40 or 50",
            do=f"check the driver with nvidia-smi, {USE_ANOTHER}",
        )
    return found[0]


def open_session(path: Path, provider: Mapping[str, str]) -> onnxruntime.InferenceSession:
    """A session in which every node runs on the card; onnxruntime refuses to leave one to the CPU.

    provider: of `provider_options`. Raises BackendError.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices([card()], provider)
    try:
        return onnxruntime.InferenceSession(str(path), options)
    except Exception as error:
        do = f"free memory on the card, update the driver, {USE_ANOTHER}"
        raise BackendError("TensorRT-RTX cannot load the part", where=path, found=str(error), do=do) from error


def provider_options(role: str, profiles: str, inputs: Mapping[str, Any], stream_weights: bool) -> dict[str, str]:
    """The plugin's options, by the names in its header tensorrt_rtx_provider_options.h.

    profiles: as `build-engines` records them: JSON of one {axis: (minimum, usual, maximum)}. inputs: of the part, by
    name; their named axes are in it. stream_weights: keep weights in host memory as needed. Raises BackendError.
    """
    ends = dict.fromkeys(("min", "opt", "max"), "")
    try:
        (ranges,) = json.loads(profiles)
        for name, shape in ((name, value["shape"]) for name, value in inputs.items()):
            if any(isinstance(axis, str) for axis in shape):
                for index, end in enumerate(ends):
                    lengths = [str(int(ranges[axis][index] if isinstance(axis, str) else axis)) for axis in shape]
                    ends[end] += f"{';' if ends[end] else ''}{name}:{'x'.join(lengths)}"
    except (ValueError, TypeError, LookupError) as error:
        do = "run: animegamer-rt build-engines --gpu rtx"
        raise BackendError(f"the shapes of {role}'s graph are not in the manifest", found=str(error), do=do) from error
    return {
        "enable_cuda_graph": "1" if role in FIXED_SHAPES else "0",
        "nv_runtime_cache_path": str(cache_folder() / "rtx-plugin"),
        "nv_weight_streaming_budget": "-1" if stream_weights else "0",
        **{f"nv_profile_{end}_shapes": text for end, text in ends.items() if text},
    }


def must_stream(weight_bytes: int) -> bool:
    """Whether weights of this size leave too little of the card for everything else, half as much again."""
    gpu, _ = open_nvml()
    return gpu is not None and 1.5 * weight_bytes > gpu.ask("nvmlDeviceGetMemoryInfo").free
