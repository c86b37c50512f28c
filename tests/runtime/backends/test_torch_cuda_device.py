"""What a user meets of the CUDA device where there is no GPU to run on: refusals, a lost GPU, limits of memory.

torch.cuda is a stand-in. Streams, captures and copies are tested on a GPU: tests/gpu/test_torch_cuda.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_machine import Machine
from torch import Tensor

from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.backends.torch.device import CudaTorchDevice
from animegamer_rt.errors import BackendError, DeviceLostError


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
    lost = "lost to this process; found CUDA error: this and that; .*start the program again"
    for code in (46, 100, 700, 719, 999):  # taken out of the machine, faults of memory, fallen off the bus
        error.error_code = code
        with pytest.raises(DeviceLostError, match=lost), CudaTorchDevice(torch.bfloat16).use():
            raise error
    with pytest.raises(BackendError, match="memory is full"), CudaTorchDevice(torch.bfloat16).use():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_fp8_that_was_asked_for_and_does_not_run_is_an_error(cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 9))
    monkeypatch.setattr(backend, "probe_fp8", lambda device: "not supported on your device")
    assert backend.open_device("cuda", "int8", captures=False).dtype == torch.bfloat16
    with pytest.raises(BackendError, match="FP8 product does not run here; .*not supported .*--precision int8"):
        backend.open_device("cuda", "fp8", captures=False)
    monkeypatch.setattr(backend, "probe_fp8", lambda device: "")
    assert backend.open_device("cuda", "fp8", captures=False).dtype == torch.bfloat16


def test_denoiser_alone_sums_in_float16_and_only_where_it_is_asked_for(
    cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SimpleNamespace(allow_fp16_accumulation=False)
    monkeypatch.setattr(torch.backends.cuda, "matmul", settings)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 9))
    for precision, expected in (("fp16", False), (backend.HALF_SUMS, True)):
        torch_device = backend.open_device("cuda", precision, captures=False)
        assert torch_device.dtype == torch.float16
        with torch_device.denoising():
            assert settings.allow_fp16_accumulation is expected
        assert settings.allow_fp16_accumulation is False


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
        assert backend.open_device("cuda", None, captures=False).dtype == dtype
