"""onnxruntime sessions that compute exactly what a graph specifies, on the CPU or CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnxruntime

from animegamer_rt.backends.onnxruntime.loader import check_device
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling.host import available_cores

Feeds = Mapping[str, npt.NDArray[Any]]


def plain_options() -> onnxruntime.SessionOptions:
    """Options of an exact session on the cores available to this process."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = available_cores()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # By default onnxruntime fuses DequantizeLinear into products, which rounds activations that the graph does not
    # round and creates a float8 operator that it does not implement (onnxruntime 1.31).
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def open_session(model: str | bytes, options: onnxruntime.SessionOptions, device: str) -> onnxruntime.InferenceSession:
    """A session on cpu or cuda. Raises BackendError if the device is missing: no fallback."""
    wanted = check_device(device)
    session = onnxruntime.InferenceSession(model, options, providers=[wanted])
    if wanted not in session.get_providers():
        found = ", ".join(session.get_providers())
        raise BackendError(f"{wanted} is not available", found=found, do="use --device cpu")
    return session


def open_plain(path: Path, device: str = "cpu") -> onnxruntime.InferenceSession:
    """A session over an ONNX file with `plain_options`. Raises BackendError if the device is missing."""
    return open_session(str(path), plain_options(), device)
