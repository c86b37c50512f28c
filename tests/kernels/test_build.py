"""`make kernels` and the GPU benchmark build in a folder that was copied from elsewhere, where CMake alone stops."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import build
from project import ROOT


def commands_of_make() -> list[list[str]]:
    shown = subprocess.run(["make", "-n", "kernels"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in shown.splitlines() if line.startswith("cmake")]


def commands_of_benchmark(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr(build.shutil, "which", lambda name, path=None: name)
    monkeypatch.setattr(build.subprocess, "run", lambda command, **how: found.append(command))
    monkeypatch.setattr(build.torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.delenv(build.PATH_VARIABLE, raising=False)
    list(build.entries({"device": "cuda"}))
    return found


def test_build_folder_that_was_copied_from_elsewhere_is_configured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("there", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.24)\nproject(a NONE)\n")
    subprocess.run(["cmake", "-S", "there", "-B", "there/build"], cwd=tmp_path, check=True, capture_output=True)
    with monkeypatch.context() as patched:
        chosen = [commands_of_make()[0], commands_of_benchmark(patched)[0]]
    for configure in chosen:
        shutil.copytree(tmp_path / "there" / "build", tmp_path / "here" / "build", dirs_exist_ok=True)
        places = {"-S": str(tmp_path / "here"), "-B": str(tmp_path / "here" / "build")}
        command: list[Any] = [
            places.get(before, word) for before, word in zip(["", *configure], configure, strict=False)
        ]
        stopped = subprocess.run([word for word in command if word != "--fresh"], capture_output=True, text=True)
        assert stopped.returncode and "CMakeCache.txt" in stopped.stderr
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
