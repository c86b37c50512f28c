"""Profiling: what a turn takes of host memory is said before it begins; which GPU is recognised by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fakes
from animegamer_bench.records import read_records
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.diagnose.doctor import run_checks
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling import host_memory

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"
GIB = 2**30
SIZES = {
    "predictor": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "mlp": 14336, "vocabulary": 32284},
    "denoiser": {"hidden": 1920, "layers": 30, "heads": 30, "latent_height": 60, "latent_width": 90},
    "decoder": {"channels": 128, "multipliers": [1, 2, 2, 4], "res_blocks": 3, "latent_channels": 16},
}
PARTS = {
    "predictor": ("int4-qdq", 4_528_307_200),
    "denoiser": ("fp16", 3_429_934_848),
    "vae_first": ("fp16", 246_847_744),
}
"""Part -> its precision, and the bytes of its weights at full size."""


@pytest.fixture
def full(tmp_path: Path) -> Bundle:
    """A bundle that says full size of itself."""
    bundle = fakes.write_bundle(tmp_path / "full")
    manifest = bundle.manifest
    parts, files = dict(manifest.parts), dict(manifest.files)
    for name, (precision, size) in PARTS.items():
        data = f"{name}.weights"
        parts[name] = replace(parts[name], precision=precision, data_files=(data,))
        files[data] = replace(next(iter(files.values())), bytes=size)
    geometry = replace(manifest.geometry, height=480, width=720, latent_height=60, latent_width=90, window_tokens=4096)
    return replace(bundle, manifest=replace(manifest, geometry=geometry, parts=parts, files=files, sizes=SIZES))


def test_memory_of_each_stage_is_said_as_it_was_measured(full: Bundle) -> None:
    *_, record = (record for record in read_records(RESULTS, "full-size-turn") if "play" in record)
    said = host_memory.with_torch(full, record["computes_in"])
    assert said.one_at_a_time
    kept = host_memory.PROCESS_BYTES + host_memory.LEFT_BYTES
    for stage, measured in record["play"]["stages"].items():
        assert (said.stages[stage] + kept) / GIB == pytest.approx(measured["peak_gib"], rel=0.2)
    assert said.peak_bytes / GIB == pytest.approx(record["play"]["peak_gib"], rel=0.05)


def test_a_machine_that_is_too_small_is_told_what_plays_there(full: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (8 * GIB, 8 * GIB))
    host_memory.check(full, "torch-cpu", "bf16")
    for device in ("cpu", "torch-cpu"):
        with pytest.raises(BackendError, match="--device torch-cpu --precision bf16"):
            host_memory.check(full, device)
    found = next(check for check in run_checks(str(full.folder)) if check.what == "host memory")
    assert found.state == "ok"  # the files are those of a tiny bundle
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (GIB, 2 * GIB))
    with pytest.raises(BackendError, match="lower precision, or a machine with more memory"):
        host_memory.check(full, "torch-cpu", "bf16")
