"""onnxruntime sessions that compute exactly what a graph specifies, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
import onnxruntime

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


def open_plain(path: Path) -> onnxruntime.InferenceSession:
    """A session over an ONNX file with `plain_options`."""
    return onnxruntime.InferenceSession(str(path), plain_options(), providers=["CPUExecutionProvider"])


def open_model(
    model: ir.Model, folder: Path, options: onnxruntime.SessionOptions | None = None, **settings: Any
) -> onnxruntime.InferenceSession:
    """A session over a model in memory whose weights are in files of `folder`; options: by default `plain_options`."""
    options = options or plain_options()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    raw = ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"], **settings)
