"""Measures the memory that onnxruntime needs to load ONNX files, in a separate process.

`python -m animegamer_export.onnx_io.load_memory FILE ..` prints MiB: the growth of peak memory while onnxruntime loads
the files on the CPU, without running them. Not on Windows, which reports no peak.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from animegamer_export.support.peak_memory import peak_mib
from animegamer_rt.profiling.child_process import child_command


def load_memory_mib(paths: Sequence[Path]) -> float | None:
    """Peak growth in MiB while the files are loaded together; None on Windows."""
    if sys.platform == "win32":
        return None
    command = child_command("animegamer_export.onnx_io.load_memory", *map(str, paths))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return round(float(done.stdout), 1)


def _main(paths: Sequence[str]) -> None:
    from animegamer_export.onnx_io.sessions import open_plain

    before = peak_mib()
    held = [open_plain(Path(path)) for path in paths]
    after = peak_mib()
    assert held and before is not None and after is not None
    print(after - before)


if __name__ == "__main__":
    _main(sys.argv[1:])
