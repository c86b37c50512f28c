"""What the tests of the export share: one tiny bundle of random weights, and one tracing of each network."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from watching import FP16, Watching

from animegamer_export.command.source import Source, from_seed
from animegamer_export.command.steps import Request, export
from animegamer_rt.bundle import Bundle

TRACED: dict[str, Any] = {}


@contextlib.contextmanager
def each_network_traced_once() -> Iterator[None]:
    """torch takes most of an export's time at this size to trace, and traces the same network in the same way."""
    plain = torch.onnx.export

    def remembered(module: nn.Module, inputs: tuple[Tensor, ...], **options: Any) -> torch.onnx.ONNXProgram:
        held = dict(module.named_parameters()) | dict(module.named_buffers())
        sizes = [getattr(part, "size", None) for part in module.modules()]
        shapes = [(value.shape, value.dtype) for value in (*inputs, *held.values())]
        digest = hashlib.sha256(repr((module, sizes, shapes, list(held), options)).encode())
        for value in held.values():
            digest.update(value.detach().numpy().tobytes())
        key = digest.hexdigest()
        if key not in TRACED:
            TRACED[key] = plain(module, inputs, **options)
        return torch.onnx.ONNXProgram(TRACED[key].model.clone(), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", remembered)
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests leave torch as they found it."""
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    torch.set_num_threads(1)
    with each_network_traced_once():
        yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)


@pytest.fixture(scope="session")
def source() -> Source:
    return from_seed(0, "tiny")


@pytest.fixture(scope="session")
def whole(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The tiny bundle, every part fp16. Tests leave it as it is."""
    with each_network_traced_once():
        bundle = export(source, Request(FP16, tmp_path_factory.mktemp("bundles") / "tiny"), Watching())
    assert bundle is not None
    return bundle
