"""The device `rtx`: typed graphs on NVIDIA's plugin for onnxruntime, as far as it can be tried without a card.

The graphs run on the CPU in its place. The plugin itself, where it is installed, loads beside a driver without cards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from project import ROOT

import animegamer_rt
import fakes
from animegamer_export.tensorrt import command
from animegamer_export.tensorrt.builder import build
from animegamer_rt.backends import registry
from animegamer_rt.backends.onnxruntime import engines, loader, rtx
from animegamer_rt.backends.tensorrt.engine_id import choose
from animegamer_rt.bundle.loader import Bundle, open_bundle, verify
from animegamer_rt.cli import main
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError, BundleFileError, EngineStaleError
from animegamer_rt.profiling import libraries
from animegamer_rt.profiling.libraries import RTX_PLUGIN


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """pocket with its typed graphs."""
    folder = shutil.copytree(ROOT / "engines/pocket", tmp_path_factory.mktemp("rtx") / "pocket")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "_build_in_subprocess", build)  # eight processes would take most of the time
        assert main(["build-engines", "--bundle", str(folder), "--gpu", "rtx"]) == 0
    return open_bundle(folder)


def test_a_turn_of_the_typed_graphs_is_the_parts_turn(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def on_cpu(path: Path, provider: object) -> onnxruntime.InferenceSession:
        asked.append(path.name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(libraries, "RTX_PLUGIN", "onnxruntime")
    monkeypatch.setattr(rtx, "card", lambda: None)
    monkeypatch.setattr(rtx, "open_session", on_cpu)
    monkeypatch.setattr(loader, "Part", lambda session, device: engines.Part(session, "cpu"))
    clips = []
    for device, threads in (("cpu-fp32", 1), ("rtx", None)):
        with animegamer_rt.open(bundle, device=device, plan="fast", threads=threads) as player:
            player.pipeline.denoiser._plan = fakes.plan_with_reuse(3)
            game = player.start(seed=7)
            clips.append([game.turn("Tofi waves in the meadow."), game.turn("Bixo runs in the city.")])
    parts = ("denoiser", "encoder", "predictor", "vae_first", "vae_next")
    assert sorted(asked) == [f"{part}-rtx.onnx" for part in parts]
    for ours, theirs in zip(*clips, strict=True):
        assert ours.state == theirs.state
        difference = np.abs(ours.frames.astype(int) - theirs.frames)
        assert 0 < difference.mean() < 0.5, "half precision, and nothing else"


def test_graphs_that_are_not_written_or_of_other_weights_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"no engine of predictor for rtx; .*build-engines --bundle .* --gpu rtx"):
        choose(open_bundle("pocket"), open_bundle("pocket").parts_of("fast"), "rtx", RTX_PLUGIN, "1")
    with pytest.raises(EngineStaleError, match="built for another version"):
        choose(bundle, bundle.parts_of("fast"), "rtx", RTX_PLUGIN, "2")


def test_the_plugin_is_told_shapes_cache_graphs_and_streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANIMEGAMER_CACHE", "cache")
    shapes = {"ids": [1, "tokens"], "shot": [1, 226], "masks": ["rows", "tokens", "tokens"]}
    inputs = {name: {"shape": shape} for name, shape in shapes.items()}
    profiles = '[{"tokens": [1, 300, 600], "rows": [1, 2, 2]}]'
    options = rtx.provider_options("predictor", profiles, inputs, True)
    assert options == {
        "enable_cuda_graph": "0",
        "nv_runtime_cache_path": str(Path("cache/rtx-plugin")),
        "nv_weight_streaming_budget": "-1",
        "nv_profile_min_shapes": "ids:1x1;masks:1x1x1",
        "nv_profile_opt_shapes": "ids:1x300;masks:2x300x300",
        "nv_profile_max_shapes": "ids:1x600;masks:2x600x600",
    }
    fixed = rtx.provider_options("vae", "[{}]", {"latent": {"shape": [1, 2]}}, False)
    assert (fixed["enable_cuda_graph"], fixed["nv_weight_streaming_budget"]) == ("1", "0")
    assert "nv_profile_min_shapes" not in fixed
    for wrong in ("", "[]", "[{}]", '[{"tokens": 1, "rows": "x"}]', '[{"tokens": [], "rows": []}]'):
        with pytest.raises(BackendError, match="shapes of predictor's graph are not in the manifest"):
            rtx.provider_options("predictor", wrong, inputs, True)


def test_a_typed_graph_reads_no_file_but_its_parts(bundle: Bundle) -> None:
    engines = dict(bundle.manifest.engines)
    engines["encoder-rtx"] = engines["predictor-rtx"]
    manifest = replace(bundle.manifest, engines=engines)
    with pytest.raises(BundleFileError, match=r"predictor-rtx\.onnx: the part reads a file that .*predictor\.weights"):
        verify(Bundle(bundle.folder, manifest))


def test_no_node_is_left_to_the_cpu(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU's own device stands for a plugin that takes no node: onnxruntime itself refuses the session."""
    (cpu,) = [one for one in onnxruntime.get_ep_devices() if one.ep_name == "CPUExecutionProvider"]
    monkeypatch.setattr(rtx, "card", lambda: cpu)
    with pytest.raises(BackendError, match=r"encoder-rtx\.onnx: TensorRT-RTX cannot load the part; .*fallback"):
        rtx.open_session(bundle.folder / "encoder-rtx.onnx", {})


def plugin(monkeypatch: pytest.MonkeyPatch, register: object) -> None:
    module = SimpleNamespace(get_ep_name=lambda: "NvTensorRTRTXExecutionProvider", get_library_path=lambda: "x.so")
    monkeypatch.setitem(sys.modules, RTX_PLUGIN, module)
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", register)
    monkeypatch.setattr(registry, "check_libraries", lambda config, reader: None)
    rtx.card.cache_clear()


def test_a_machine_without_driver_or_card_is_refused_in_words(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "RTX_PLUGIN", "no_such_module")
    with pytest.raises(BackendError, match=r"plugin is not installed; run: pip install 'onnxruntime>=1\.31' onnxr"):
        registry.open_engines(bundle, EngineConfig("rtx"), plan="fast")

    def fails(name: str, path: str) -> None:
        raise RuntimeError("libcuda.so.1: cannot open shared object file")

    plugin(monkeypatch, fails)
    with pytest.raises(BackendError, match=r"cannot be loaded; found libcuda.so.1: .*; install NVIDIA's driver"):
        registry.open_engines(bundle, EngineConfig("rtx"), plan="fast")
    plugin(monkeypatch, lambda name, path: None)
    with pytest.raises(BackendError, match=r"finds no card that it can use; found CPUExec.*; expected an RTX card"):
        registry.open_engines(bundle, EngineConfig("rtx"), plan="fast")
    rtx.card.cache_clear()


DRIVER = """
#define NONE(name) int name(void) { return 100; }
NONE(cuCtxCreate_v4) NONE(cuCtxDestroy_v2) NONE(cuCtxGetCurrent) NONE(cuCtxPopCurrent_v2) NONE(cuCtxPushCurrent_v2)
NONE(cuCtxSetCurrent) NONE(cuDestroyExternalMemory) NONE(cuDestroyExternalSemaphore)
NONE(cuExternalMemoryGetMappedBuffer) NONE(cuGetErrorString) NONE(cuImportExternalMemory)
NONE(cuImportExternalSemaphore) NONE(cuInit) NONE(cuSignalExternalSemaphoresAsync) NONE(cuStreamGetCtx)
NONE(cuWaitExternalSemaphoresAsync) NONE(nvmlErrorString) NONE(nvmlInit_v2) NONE(nvmlShutdown)
NONE(nvmlSystemGetDriverVersion)
"""
"""A driver that finds no card: what the plugin's library needs to be loaded."""


@pytest.mark.skipif(shutil.which("cc") is None or sys.platform != "linux", reason="builds a driver's stand-in with cc")
def test_the_real_plugin_finds_no_card_beside_a_driver_without_one(bundle: Bundle, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_ep_nv_tensorrt_rtx")
    (tmp_path / "driver.c").write_text(DRIVER, encoding="utf-8")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        build = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", name, "driver.c"]
        subprocess.run(build, check=True, cwd=tmp_path)
    play = [sys.executable, "-m", "animegamer_rt", "play", "--bundle", str(bundle.folder), "--device", "rtx"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    given = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
    done = subprocess.run([*play, "--plan", "fast"], **given)  # type: ignore[call-overload]
    assert done.returncode == 2, done.stderr
    assert "TensorRT-RTX's plugin finds no card that it can use; found CPUExecutionProvider; " in done.stderr
