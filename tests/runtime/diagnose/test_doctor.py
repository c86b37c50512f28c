"""The doctor finds what is there and what is not, says what helps, and fails only where playing cannot work."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import av
import pytest
from fake_device import with_engines
from fake_nvml import FakeNvml

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PLAY_GRAPHS
from animegamer_rt.cli import main
from animegamer_rt.diagnose import doctor, machine_checks
from animegamer_rt.diagnose.doctor import run_checks
from animegamer_rt.diagnose.machine_checks import CheckResult
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling import host_memory
from animegamer_rt.profiling.nvml import Gpu


class Rtx4070(FakeNvml):
    """A machine with one card."""

    def __init__(self, total_mib: int = 12282) -> None:
        super().__init__()
        self.total_mib = total_mib

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65"

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA GeForce RTX 4070"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=self.total_mib * 2**20, free=11000 * 2**20)

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return 8, 9


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(lacks=("driver",)))


def put_card(monkeypatch: pytest.MonkeyPatch, total_mib: int = 12282) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Rtx4070(total_mib))


def found(bundle: Bundle, what: str) -> CheckResult:
    (finding,) = (finding for finding in run_checks(str(bundle.folder)) if finding.what == what)
    return finding


@pytest.mark.usefixtures("no_gpu")
def test_a_machine_without_a_gpu_plays(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bundle", str(bundle.folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Playing works: animegamer-rt play, with --device cpu.\n")
    assert "no NVIDIA driver" in said.partition("Missing: optional")[2]
    assert "Broken" not in said and "GPU memory" not in said
    assert max(map(len, said.replace(str(Path.cwd()), "").splitlines())) <= 80
    assert main(["doctor", "--bundle", str(bundle.folder), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["can_play"] is True and record["verdict"].startswith("Playing works")
    found = {finding["what"] for finding in record["findings"]}
    assert {"python", "gpu", "onnxruntime", "video", "bundle", "parts", "disk"} <= found


def test_a_damaged_bundle_cannot_be_played(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    weights = bundle.folder / "tokenizer.model"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert main(["doctor", "--bundle", str(bundle.folder)]) == doctor.CANNOT_PLAY
    said = capsys.readouterr().out
    assert said.startswith("Playing does not work: bundle.")
    assert "tokenizer.model" in said and "restore the file" in said


def absent(name: str) -> str:
    raise machine_checks.metadata.PackageNotFoundError(name)


def find_all_but_onnx(name: str) -> object | None:
    return None if name == "onnx" else object()


def version_of_all_but_cuda(name: str) -> str | None:
    return None if name == "cuda" else "1.7.1"


@pytest.mark.parametrize(
    ("place", "name", "value", "what", "state", "said"),
    [
        (av, "codecs_available", {"png"}, "video", "broken", "without libx264"),
        (machine_checks, "module_version", version_of_all_but_cuda, "tensorrt", "ok", "pip install 'cuda-python"),
        (machine_checks.metadata, "version", absent, "torch", "limited", "torch is not installed"),
        (machine_checks.importlib.util, "find_spec", find_all_but_onnx, "export", "limited", "not installed: onnx;"),
    ],
    ids=["no codec", "no cuda-python", "no torch", "no onnx"],
)
def test_what_this_machine_lacks_is_told(
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    place: object,
    name: str,
    value: object,
    what: str,
    state: str,
    said: str,
) -> None:
    monkeypatch.setattr(place, name, value)
    finding = found(bundle, what)
    assert finding.state == state and said in finding.found + finding.do


@pytest.mark.parametrize(
    ("named", "said"),
    [("off", "turned off: --device torch uses plain operators"), ("gone.so", "gone.so: kernel library not found")],
)
def test_missing_kernels_stop_nothing(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, named: str, said: str) -> None:
    monkeypatch.setenv("ANIMEGAMER_KERNELS", named)
    finding = found(bundle, "kernels")
    assert finding.state == "limited" and said in finding.found


def test_a_card_and_its_lacks_are_described(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_card(monkeypatch)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    assert found(bundle, "gpu").found == "NVIDIA GeForce RTX 4070 (sm89), 10.7 of 12.0 GiB free, driver 580.65"
    assert "pip install 'onnxruntime-gpu[cuda,cudnn]'" in found(bundle, "onnxruntime").do
    assert "onnxruntime-ep-nv-tensorrt-rtx" in found(bundle, "rtx").do
    engines = found(bundle, "engines")
    everything = "no engine of predictor, denoiser, vae_first, vae_next for sm89"
    assert engines.state == "limited" and engines.found == everything
    assert engines.do == f"run: animegamer-rt build-engines --bundle {bundle.folder} --gpu sm89"
    assert found(bundle, "memory").state == "ok"


def test_the_memory_of_each_plan_is_foretold_for_a_card(full: Bundle) -> None:
    def about(gib: float) -> CheckResult:
        (finding,) = doctor._memory(full, [Gpu("a card", int(1024 * gib), int(1024 * gib), "580", "sm89")])
        return finding

    small = about(8)
    assert small.state == "ok" and small.found.endswith("--device torch --precision fp8: exact 9.9, turbo 7.1")
    assert about(6).state == "limited" and "lower precision" in about(6).do


CPU_FILES, GPU_FILES = ["CPUExecutionProvider"], ["CUDAExecutionProvider", "CPUExecutionProvider"]


def put_onnxruntime(monkeypatch: pytest.MonkeyPatch, distributions: set[str], providers: list[str] | None) -> None:
    """An environment where pip knows these distributions, in version 1.31.1, and these files are there (None: none)."""

    def version(name: str) -> str:
        return "1.31.1" if name in distributions else absent(name)

    module = SimpleNamespace(__version__="1.31.1", get_available_providers=lambda: providers)
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace() if providers is None else module)


CPU_MEND = "run: pip uninstall --yes onnxruntime-gpu && pip install --force-reinstall --no-deps onnxruntime==1.31.1"
GPU_MEND = "run: pip uninstall --yes onnxruntime && pip install --force-reinstall --no-deps onnxruntime-gpu==1.31.1"


@pytest.mark.parametrize(
    ("distributions", "providers", "gpu_here", "state", "do"),
    [
        ({"onnxruntime"}, CPU_FILES, False, "ok", ""),
        ({"onnxruntime-gpu"}, GPU_FILES, True, "ok", ""),
        ({"onnxruntime", "onnxruntime-gpu"}, CPU_FILES, False, "limited", CPU_MEND),
        ({"onnxruntime", "onnxruntime-gpu"}, CPU_FILES, True, "limited", GPU_MEND),
        ({"onnxruntime", "onnxruntime-gpu"}, None, True, "broken", GPU_MEND),
        ({"onnxruntime"}, GPU_FILES, False, "limited", CPU_MEND.replace("pip uninstall --yes onnxruntime-gpu && ", "")),
        ({"onnxruntime-gpu"}, CPU_FILES, True, "limited", GPU_MEND.replace("pip uninstall --yes onnxruntime && ", "")),
        ({"onnxruntime-gpu"}, None, False, "broken", GPU_MEND.replace("pip uninstall --yes onnxruntime && ", "")),
        (set(), None, False, "broken", "run: pip install onnxruntime"),
    ],
)
def test_a_mixed_onnxruntime_is_named_with_the_command_that_repairs_it(
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    distributions: set[str],
    providers: list[str] | None,
    gpu_here: bool,
    state: str,
    do: str,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Rtx4070() if gpu_here else FakeNvml(lacks=("driver",)))
    put_onnxruntime(monkeypatch, distributions, providers)
    finding = found(bundle, "onnxruntime")
    assert (finding.state, finding.do) == (state, do)
    assert all(f"{name} 1.31.1" in finding.found for name in distributions if do)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("sources", "state"), [("", "ok"), ("0" * 64, "limited")])
def test_engines_are_held_against_the_bundles_weights(bundle: Bundle, sources: str, state: str) -> None:
    finding = found(with_engines(bundle, sources=sources), "engines")
    assert finding.state == state
    if state == "ok":
        assert finding.found == "4 for sm89, tensorrt_rtx 1.7.1.116"
    else:
        for part in PLAY_GRAPHS:
            assert f"{part}: the engine was built from other weights" in finding.found
        assert "--gpu sm89" in finding.do


def test_a_bundle_that_is_not_there_comes_with_the_command_that_makes_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bundle", "nowhere"]) == doctor.CANNOT_PLAY
    said = capsys.readouterr().out
    assert "no bundle 'nowhere'" in said and "run: animegamer-rt export --checkpoints DIR --out BUNDLE" in said


def test_sizes_are_told_by_part_and_compared_with_the_disk(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    said = found(bundle, "parts").found
    assert [entry.split()[0] for entry in said.split(", ")] == ["predictor", "denoiser", "vae"]
    monkeypatch.setattr(doctor, "_part_bytes", lambda bundle: [("predictor", 9 * 10**9)])
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: SimpleNamespace(free=15 * 10**9))
    finding = found(bundle, "disk")
    assert finding.state == "limited" and finding.found.startswith("15.0 GB free") and "free disk space" in finding.do
    assert "a bundle of this size takes 18.0 GB" in finding.found


GIB = 2**30


def test_a_machine_that_is_too_small_is_told_what_plays_there(full: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (16 * GIB, 16 * GIB))
    host_memory.check(full, "torch-cpu", "bf16")
    for device in ("cpu", "torch-cpu"):
        with pytest.raises(BackendError, match="--device torch-cpu --precision bf16"):
            host_memory.check(full, device)
    found = next(check for check in run_checks(str(full.folder)) if check.what == "host memory")
    assert found.state == "ok"  # the files are those of a tiny bundle
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (GIB, 2 * GIB))
    with pytest.raises(BackendError, match="lower precision, or a machine with more memory"):
        host_memory.check(full, "torch-cpu", "bf16")
