"""The peers of the GPU benchmark run: the same three networks by diffusers and transformers, tiny, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "import json; from benchmarks import gpu_peers; print(json.dumps([*gpu_peers.peers('cpu', gpu_peers.TINY)]))"


def test_a_turn_by_the_peers_is_the_sum_of_its_stages() -> None:
    # In a process of its own: what those libraries warn of when they are imported is not ours to mend.
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout.splitlines()[-1])
    assert entry["peer"] == "diffusers eager" and entry["device"] == "cpu"
    assert set(entry["stages"]) == {"predictor", "denoiser", "vae"}
    assert all(seconds > 0 for seconds in entry["stages"].values())
    assert abs(entry["seconds_per_turn"] - sum(entry["stages"].values())) < 1e-3
