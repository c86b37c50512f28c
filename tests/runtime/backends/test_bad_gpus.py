"""A GPU that cannot be used is named in one sentence with what to do, before a weight is read; `doctor` tells the same.

Driver, NVML and PyTorch's view of the GPU are stand-ins.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_nvml import FakeNvml
from torch import Tensor

import fakes
from animegamer_kernels.library import PATH_VARIABLE
from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.backends.torch import loader
from animegamer_rt.backends.torch.device import CudaTorchDevice
from animegamer_rt.cli import main
from animegamer_rt.diagnose import machine_checks
from animegamer_rt.errors import BackendError, DeviceLostError
from animegamer_rt.play import command

GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """driver: its version, empty where there is none. arch: the GPU's.

    torch_cuda: the CUDA that PyTorch was built for. start: what PyTorch says when CUDA does not start. code: CUDA's
    error of the first kernel.
    """

    driver: str = "590.48"
    arch: tuple[int, int] = (8, 9)
    free_bytes: int = 20 * GIB
    torch_cuda: str | None = "13.0"
    start: str = ""
    code: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        """Makes this process believe in it; `folder` gets what the installed PyTorch says of itself."""
        monkeypatch.setitem(sys.modules, "pynvml", _Nvml(self))
        monkeypatch.setattr(torch.version, "cuda", self.torch_cuda)
        (folder / "version.py").write_text(f"cuda: Optional[str] = {self.torch_cuda!r}\n", encoding="utf-8")
        find: Callable[..., Any] = importlib.util.find_spec
        spec = SimpleNamespace(origin=str(folder / "__init__.py"), submodule_search_locations=[str(folder)])
        found = machine_checks.importlib.util
        monkeypatch.setattr(found, "find_spec", lambda name: spec if name == "torch" else find(name))
        for name, stand_in in self._torch().items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        plain = torch.ones

        def ones(*shape: int, device: torch.device | None = None, **how: Any) -> torch.Tensor:
            if device is not None and self.code:
                raise cuda_error(self.code)
            return plain(*shape, **how)

        monkeypatch.setattr(torch, "ones", ones)

    def _torch(self) -> dict[str, Any]:
        def init() -> None:
            if self.start:
                raise RuntimeError(self.start)

        return {
            "is_available": lambda: bool(self.torch_cuda) and not self.start,
            "init": init,
            "current_device": lambda: 0,
            "get_device_capability": lambda device=None: self.arch,
            "get_device_properties": lambda device: SimpleNamespace(uuid="a"),
            "MemPool": lambda: SimpleNamespace(id=(0, 0)),
            "Stream": lambda *given: SimpleNamespace(synchronize=lambda: None),
            "stream": lambda stream: torch.no_grad(),
            "device": lambda device: torch.no_grad(),
            "current_blas_handle": lambda: 0,
            "mem_get_info": lambda device: (self.free_bytes, 24 * GIB),
            "memory_reserved": lambda device: 0,
            "memory_allocated": lambda device: 0,
            "get_per_process_memory_fraction": lambda device: 1.0,
        }


def cuda_error(code: int) -> torch.AcceleratorError:
    """PyTorch's error for a code of CUDA."""
    error = torch.AcceleratorError(f"CUDA error: number {code}\nmore lines")
    error.error_code = code
    return error


class _Nvml(FakeNvml):
    def __init__(self, machine: Machine) -> None:
        super().__init__(lacks=() if machine.driver else ("driver",))
        self._machine = machine

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._machine.driver

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return self._machine.arch

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=24 * GIB, free=self._machine.free_bytes)


OLD = Machine(driver="535.54", start="The NVIDIA driver on your system is too old (found version 12020). Please update")
NONE = Machine(driver="", start="Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU")
PASCAL, FULL, BRIM = Machine(arch=(6, 1), code=209), Machine(free_bytes=0), Machine(free_bytes=0, code=2)
BAD = {
    "no driver": (NONE, "there is no NVIDIA driver, or it is too old.*install or update", "gpu", "no NVIDIA driver"),
    "old driver": (
        OLD,
        "no NVIDIA driver, or it is too old.*12020.*update the driver",
        "torch",
        "535.54; expected 580",
    ),
    "no CUDA": (Machine(torch_cuda=None), "built without CUDA; .*pytorch.org", "torch", "was built without CUDA"),
    "old GPU": (PASCAL, "built for other GPUs; .*install a build for this GPU", "torch", "found sm61; expected sm75"),
    "hidden GPU": (Machine(start="No CUDA GPUs are available"), "finds no NVIDIA GPU; .*CUDA_VISIBLE_DEVICES", "", ""),
    "full": (FULL, r"too little free memory .*0\.0 GiB free.*that nvidia-smi lists", "memory", "0.0 GiB are free"),
    "no byte free": (
        BRIM,
        "full before anything was loaded; .*nvidia-smi lists them",
        "gpu",
        "0.0 of 24.0 GiB free, driver 590.48",
    ),
    "taken": (Machine(code=46), "another program uses the GPU exclusively; .*nvidia-smi -c DEFAULT", "", ""),
    "updated": (Machine(code=803), "its older module still runs; .*restart the machine", "", ""),
}


@pytest.mark.parametrize(("machine", "said", "what", "finding"), BAD.values(), ids=BAD)
def test_gpu_that_cannot_be_used_is_named_and_doctor_tells_the_same(
    machine: Machine,
    said: str,
    what: str,
    finding: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine.install(monkeypatch, tmp_path)
    monkeypatch.setenv(PATH_VARIABLE, "off")

    def read(*given: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr(loader, "load_models", read)
    assert play(folder, tmp_path) == 2
    sentences = capsys.readouterr().err.splitlines()
    assert len(sentences) == 1 and re.search(said, sentences[0]), sentences
    found = doctors_findings(folder, capsys)
    if what:
        assert finding in found[what]["found"]
        assert found[what]["state"] == ("ok" if finding.startswith("0.0 of") else "limited")


KERNELS = {
    "other CUDA": (None, "not a compatible kernel library; found", "rebuild it: make kernels"),
    "other GPU": (SimpleNamespace(has_cuda=True, runs_here=False, path="k"), "k was built for other GPUs", "kernels"),
}


@pytest.mark.parametrize(("library", "said", "do"), KERNELS.values(), ids=KERNELS)
def test_doctor_names_kernels_of_another_cuda_or_gpu(
    library: object,
    said: str,
    do: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Machine().install(monkeypatch, tmp_path)
    (tmp_path / "kernels.so").write_text("built elsewhere")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "kernels.so"))
    if library is not None:
        monkeypatch.setattr(machine_checks, "open_library", lambda: library)
    found = doctors_findings(folder, capsys)["kernels"]
    assert found["state"] == "limited" and said in found["found"] and do in found["do"]


def play(folder: Path, place: Path) -> int:
    (place / "story.txt").write_text("Mia waves.\nTobo runs.\nMia sleeps.\n", encoding="utf-8")
    given = ["--instructions", str(place / "story.txt"), "--out", str(place / "out")]
    return main(["play", "--bundle", str(folder), "--device", "torch", *given])


def doctors_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    main(["doctor", "--bundle", str(folder), "--json"])
    return {found["what"]: found for found in json.loads(capsys.readouterr().out)["findings"]}


class LeavingDenoiser(fakes.FakeDenoiser):
    """Its GPU leaves in the second turn: from the second step on, CUDA knows no device."""

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> fakes.FakeDenoising:
        run = super().start(latent, shot, motion_scope)
        if len(self.motion_scopes) == 2:
            step = run.step

            def lost(*given: Any) -> None:
                with CudaTorchDevice(torch.float32).use():
                    if len(self.steps) == 1:
                        raise cuda_error(100)
                    step(*given)

            run.step = lost  # type: ignore[method-assign]
        return run


def test_gpu_that_leaves_in_a_turn_costs_that_turn_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Machine().install(monkeypatch, tmp_path)
    monkeypatch.setattr(command, "open_engines", lambda *given: fakes.fake_engines(denoiser=LeavingDenoiser()))
    assert play(folder, tmp_path) == 2
    *_, sentence = capsys.readouterr().err.splitlines()
    assert "this process has lost the GPU; found CUDA error: number 100; restart the program" in sentence
    game = json.loads((tmp_path / "out" / "game.json").read_text(encoding="utf-8"))
    assert [turn["instruction"] for turn in game["turns"]] == ["Mia waves."]
    assert (tmp_path / "out" / "turn-001.mp4").is_file()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch.cuda with a GPU on which nothing can run."""
    Machine().install(monkeypatch, tmp_path)


def test_error_that_the_process_survives_is_not_a_lost_gpu(cuda: None) -> None:
    survived = {
        222: "the driver is too old for this code.*; update the driver",
        901: "a CUDA graph could not be captured.*graphs=False",
    }
    error = torch.AcceleratorError("CUDA error: this and that\nmore lines")
    for code, said in survived.items():
        error.error_code = code
        with pytest.raises(BackendError, match=said) as found, CudaTorchDevice(torch.bfloat16).use():
            raise error
        assert not isinstance(found.value, DeviceLostError)
    lost = "lost the GPU; found CUDA error: this and that; .*restart the program"
    for code in (46, 100, 700, 719, 999):  # taken out of the machine, faults of memory, fallen off the bus
        error.error_code = code
        with pytest.raises(DeviceLostError, match=lost), CudaTorchDevice(torch.bfloat16).use():
            raise error
    with pytest.raises(BackendError, match="memory is full"), CudaTorchDevice(torch.bfloat16).use():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_fp8_that_was_asked_for_and_does_not_run_is_an_error(cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 9))
    monkeypatch.setattr(loader, "probe_fp8", lambda device: "not supported on your device")
    assert loader.open_device("cuda", "int8", captures=False).dtype == torch.bfloat16
    with pytest.raises(BackendError, match="FP8 product does not run here; .*not supported .*--precision int8"):
        loader.open_device("cuda", "fp8", captures=False)
    monkeypatch.setattr(loader, "probe_fp8", lambda device: "")
    assert loader.open_device("cuda", "fp8", captures=False).dtype == torch.bfloat16


def test_host_without_pinned_memory_is_not_a_lost_gpu(cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*shape: object, **how: object) -> Tensor:
        assert how["pin_memory"]
        raise torch.AcceleratorError("CUDA error: out of memory")

    torch_device = CudaTorchDevice(torch.bfloat16)
    monkeypatch.setattr(torch, "zeros", refuse)
    with pytest.raises(BackendError, match="no pinned memory left.*found 3 MiB requested"):
        torch_device.pinned((3, 2**20), torch.uint8)


def test_default_precision_follows_the_gpu(cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, dtype in (((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None, its=capability: its)
        assert loader.open_device("cuda", None, captures=False).dtype == dtype
