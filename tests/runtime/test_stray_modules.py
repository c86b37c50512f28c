"""Python files that happen to lie in the current folder: no command and no process that it starts runs one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fakes

NAMES = ("types", "random", "runpy", "json", "numpy", "zmq", "animegamer_rt", "animegamer_export", "sitecustomize")


@pytest.fixture
def stray(tmp_path: Path) -> Path:
    """A folder of modules that leave a file when they are run."""
    folder = tmp_path / "stray"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'a').write({name!r} + ' ')\n")
    return folder


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """`animegamer-rt` as it is installed: a script in another folder."""
    script = tmp_path / "bin" / "animegamer-rt"
    script.parent.mkdir()
    script.write_text("import sys\nfrom animegamer_rt.__main__ import main\nsys.exit(main())\n")
    return [sys.executable, str(script)]


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    return str(fakes.write_bundle(tmp_path / "tiny").folder)


def ran(tmp_path: Path) -> str:
    return (tmp_path / "RAN").read_text() if (tmp_path / "RAN").exists() else ""


def test_bench_runs_none(command: list[str], bundle: str, stray: Path, tmp_path: Path) -> None:
    options = ["bench", "run", "--bundle", bundle, "--turns", "1", "--results", str(tmp_path / "results")]
    done = subprocess.run([*command, *options], cwd=stray, capture_output=True, text=True)
    assert (done.returncode, done.stderr, ran(tmp_path)) == (0, "", "")


def test_serve_and_its_worker_run_none(command: list[str], bundle: str, stray: Path, tmp_path: Path) -> None:
    options = ["serve", "--bundle", bundle, "--state-dir", str(tmp_path / "state"), "--port", "0"]
    process = subprocess.Popen(
        [*command, *options, "--device", "simulated:0"], cwd=stray, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
    finally:
        process.terminate()
        process.communicate()
    assert said.startswith(b'{"address"') and ran(tmp_path) == ""
