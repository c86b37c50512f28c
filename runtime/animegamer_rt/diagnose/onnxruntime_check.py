"""Which onnxruntime is installed, whether its files are its own, and the command that repairs a mixed environment.

onnxruntime and onnxruntime-gpu are two distributions that write the same files. Where both were installed, the
last files are there, and removing either removes files of the other (microsoft/onnxruntime issue 26996).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from types import ModuleType

from animegamer_rt.profiling import libraries

from .check_result import CheckResult

CPU, GPU = "onnxruntime", "onnxruntime-gpu"
CUDA_PROVIDER = "CUDAExecutionProvider"
INSTALL_CPU = "run: pip install onnxruntime"
INSTALL_CUDA = f"run, in an environment of its own: pip uninstall --yes onnxruntime && {libraries.INSTALL_CUDA}"


def check_onnxruntime(gpu_here: bool, others: Sequence[str] = ()) -> CheckResult:
    """What was found of onnxruntime.

    gpu_here: the machine has an NVIDIA GPU, so that CUDA is what a mixed environment was meant for.
    others: libraries that play without onnxruntime (torch, say); with one of them, its absence stops nothing.
    """
    versions = _installed()
    module = _import()
    if module is None:
        if versions:
            wanted = _wanted(versions, gpu_here)
            found = f"{_in_words(versions)}: files are missing, as after removing one of {CPU} and {GPU}"
            return CheckResult("onnxruntime", "broken", found, _install_command(wanted, versions))
        found = "not installed: no --device cpu or cuda, no game from a picture"
        install = INSTALL_CUDA if gpu_here and not others else INSTALL_CPU
        return CheckResult("onnxruntime", "limited" if others else "broken", found, install)
    providers = module.get_available_providers()
    has_cuda = CUDA_PROVIDER in providers
    found = f"{module.__version__} with {', '.join(providers)}"
    if len(versions) > 1:
        found = f"{_in_words(versions)} are both installed and share their files; now there: {found}"
        return CheckResult("onnxruntime", "limited", found, _install_command(_wanted(versions, gpu_here), versions))
    for name, version in versions.items():
        if has_cuda != (name == GPU) or module.__version__ != version:
            found = f"{name} {version} is installed with the files of another onnxruntime: {found}"
            return CheckResult("onnxruntime", "limited", found, _install_command(name, versions))
    return CheckResult("onnxruntime", "ok", found, INSTALL_CUDA if gpu_here and not has_cuda else "")


def _installed() -> dict[str, str]:
    """The distributions that pip knows, with their versions."""
    found = {}
    for name in (CPU, GPU):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _import() -> ModuleType | None:
    """The module, or None where it cannot be imported or is a folder without its files."""
    try:
        module = importlib.import_module("onnxruntime")
    except (ImportError, OSError):
        return None
    return module if hasattr(module, "get_available_providers") else None


def _wanted(versions: Mapping[str, str], gpu_here: bool) -> str:
    return GPU if GPU in versions and (gpu_here or CPU not in versions) else CPU


def _install_command(wanted: str, versions: Mapping[str, str]) -> str:
    """The other one goes first, as removing it removes shared files; then the wanted one writes all of its own."""
    other = CPU if wanted == GPU else GPU
    remove = f"pip uninstall --yes {other} && " if other in versions else ""
    return f"run: {remove}pip install --force-reinstall --no-deps {wanted}=={versions[wanted]}"


def _in_words(versions: Mapping[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in versions.items())
