"""Builds TensorRT engines from a bundle's ONNX parts: `animegamer-rt export tensorrt`, or this package run as a module.

`graph` writes each part in the types TensorRT takes, `builder` builds one engine, `command` the ones asked for.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The command; imports the ONNX libraries when called."""
    from animegamer_export.tensorrt.command import main as command

    return command(argv)
