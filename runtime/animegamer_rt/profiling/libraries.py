"""Checks, without importing them, that a device's libraries are installed, and built for CUDA if the device needs it.

The server process uses it. Whether driver and GPU work is only known once engines are opened.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from animegamer_rt.engine_config import ONNXRUNTIME_DEVICES, TORCH_DEVICES, EngineConfig
from animegamer_rt.errors import BackendError

INSTALL_TORCH = "pip install 'torch>=2.9'"
RTX_PLUGIN = "onnxruntime_ep_nv_tensorrt_rtx"
"""onnxruntime's plugin for RTX cards, by module name."""
INSTALL_RTX = "pip install 'onnxruntime>=1.31' onnxruntime-ep-nv-tensorrt-rtx (without onnxruntime-gpu)"
INSTALL_CUDA = "pip install 'onnxruntime-gpu[cuda,cudnn]'"
CUDA_PYTHON = "'cuda-python>=13'"
"""The first version that has cuda.bindings.utils and releases the GIL while a call waits."""
INSTALL_TENSORRT: Mapping[str, str] = MappingProxyType(
    {
        "tensorrt_rtx": f"pip install tensorrt-rtx-cu13 {CUDA_PYTHON}",
        "tensorrt": f"pip install tensorrt {CUDA_PYTHON}",
    }
)
"""TensorRT-RTX and TensorRT by module name -> the command that installs it."""


def check_libraries(config: EngineConfig, *, reader: bool) -> None:
    """Raises BackendError if a library that these engines need is missing, or was built without CUDA.

    reader: the bundle has readers, which run in onnxruntime on the CPU whatever the device.
    """
    if config.device in TORCH_DEVICES:
        _check_torch(cuda=config.device == "torch")
    elif config.device == "tensorrt":
        _check_tensorrt()
    elif config.device == "rtx" and importlib.util.find_spec(RTX_PLUGIN) is None:
        raise BackendError("onnxruntime's TensorRT-RTX plugin is not installed", do=f"run: {INSTALL_RTX}")
    if reader or config.device in (*ONNXRUNTIME_DEVICES, "rtx"):
        _check_onnxruntime(cuda=config.device == "cuda")


def torch_versions() -> dict[str, str | None]:
    """What the installed torch was built for (`cuda`, `hip`, ..); empty if unknown."""
    text = "".join(path.read_text(encoding="utf-8") for path in _files("torch", "version.py"))
    found = re.findall(r"^(\w+)\b[^=\n]*= *(?:None|['\"](.*)['\"])", text, re.MULTILINE)
    return {name: version or None for name, version in found}


def _check_torch(*, cuda: bool) -> None:
    if importlib.util.find_spec("torch") is None:
        raise BackendError("PyTorch is not installed", do=f"run: {INSTALL_TORCH}")
    built = torch_versions()
    if cuda and "cuda" in built and not (built["cuda"] or built.get("hip")):
        do = "install a CUDA build of torch (pytorch.org/get-started), or use --device cpu"
        raise BackendError("this PyTorch was built without CUDA", found=f"torch {built.get('__version__')}", do=do)


def _check_onnxruntime(*, cuda: bool) -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        do = f"run: pip install onnxruntime (or for CUDA, in a separate environment: {INSTALL_CUDA})"
        raise BackendError("onnxruntime is not installed", do=do)
    if cuda and not _files("onnxruntime", "capi/*onnxruntime_providers_cuda*"):
        do = f"run: pip uninstall onnxruntime && {INSTALL_CUDA} (in a separate environment), or use --device cpu"
        raise BackendError("this onnxruntime was built without CUDA", do=do)


def _check_tensorrt() -> None:
    if importlib.util.find_spec("cuda") is None:
        raise BackendError("cuda-python is not installed", do=f"run: pip install {CUDA_PYTHON}")
    if not any(map(importlib.util.find_spec, INSTALL_TENSORRT)):
        do = "run: {} (for Hopper and other data-centre GPUs: {})".format(*INSTALL_TENSORRT.values())
        raise BackendError("TensorRT is not installed", do=do)


def _files(package: str, pattern: str) -> list[Path]:
    """Files of an installed package, without importing it; none if there is no such package."""
    folders = getattr(importlib.util.find_spec(package), "submodule_search_locations", None) or ()
    return [path for folder in folders for path in Path(folder).glob(pattern)]
