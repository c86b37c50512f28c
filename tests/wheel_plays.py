"""The wheel plays in a clean environment without the checkout. Run by `make dist`; pip needs the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEEL_MIB = 30.0


def main(folder: Path) -> int:
    """Install the one wheel in `folder` into a new venv, play a game from an empty folder, look at what it wrote."""
    wheels = list(folder.glob("*.whl"))
    assert len(wheels) == 1, f"expected one wheel in {folder}, found {wheels}"
    mib = wheels[0].stat().st_size / 2**20
    assert mib < WHEEL_MIB, f"{wheels[0].name} has {mib:.1f} MiB, at most {WHEEL_MIB:.0f}"
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ANIMEGAMER_BUNDLES")
    }
    with tempfile.TemporaryDirectory() as name:
        clean = Path(name)
        venv.create(clean / "venv", with_pip=True)
        programs = clean / "venv" / ("Scripts" if os.name == "nt" else "bin")
        install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*install, str(wheels[0].resolve())], check=True, env=environment, cwd=clean)
        start = time.monotonic()
        command = [str(programs / "animegamer-rt"), "play", "--seed", "7", "--out", "game"]
        subprocess.run(command, check=True, env=environment, cwd=clean, stdin=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        turns = json.loads((clean / "game" / "game.json").read_text(encoding="utf-8"))["turns"]
        assert turns and all((clean / "game" / f"turn-{turn['turn']:03d}.mp4").stat().st_size for turn in turns)
        listed = [str(programs / "python"), "-m", "pip", "list", "--format", "json"]
        installed = json.loads(subprocess.run(listed, check=True, env=environment, capture_output=True).stdout)
        assert "torch" not in {package["name"] for package in installed}, "the base install pulls torch"
        size = sum(path.lstat().st_size for path in (clean / "venv").rglob("*") if path.is_file()) / 2**20
    print(f"{wheels[0].name}: {mib:.1f} MiB; {len(turns)} turns in {seconds:.1f} s; the environment has {size:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
