"""One tracing of each network for all tests of exports, in one thread."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

plain = torch.onnx.export
registry = functools.cache(ONNXRegistry.from_torchlib)


@contextlib.contextmanager
def each_network_traced_once(folder: Path) -> Iterator[None]:
    """torch takes most of an export's time at this size to trace: a network of other weights gets the same graph."""

    def remembered(module: nn.Module, inputs: tuple[Tensor, ...], **options: Any) -> torch.onnx.ONNXProgram:
        held = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
        for value in held.values():
            value.data = value.data.contiguous()  # as a stand-in without memory, it would be traced apart
        plainly = [{name: said for name, said in vars(part).items() if name[0] != "_"} for part in module.modules()]
        shapes = [(value.shape, value.dtype) for value in (*inputs, *held.values())]
        key = repr((module, plainly, shapes, list(held), options))
        file = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.onnx"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be tracing it
            if not file.exists():
                unfinished = file.with_suffix(".unfinished")
                gc.disable()  # it takes a sixth of a tracing
                ir.save(plain(module, inputs, **options).model, unfinished)
                gc.enable()
                unfinished.replace(file)
        model = ir.load(file).clone()  # whose shapes can be changed
        for name in held.keys() & model.graph.initializers.keys():
            model.graph.initializers[name].const_value = ir.tensor(held[name].detach().numpy(), name=name)
        return torch.onnx.ONNXProgram(model, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", remembered)
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(registry))  # a third of a second for each tracing
        yield


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the traced graphs, which the workers of pytest-xdist share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "traces"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module", autouse=True)
def traced_once(traces: Path) -> Iterator[None]:
    with each_network_traced_once(traces):
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests leave torch as they found it."""
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)
