"""The real onnxruntime, on the tiny bundle's real ONNX parts."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import fakes
from animegamer_rt.backends import onnxruntime as backend
from animegamer_rt.backends import registry
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle import loader as bundles
from animegamer_rt.bundle.denoise_plan import even_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Part
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError, BundleError, BundleFileError, DeviceLostError
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import GameState
from animegamer_rt.state.instruction import Instruction

RANDOM = np.random.default_rng(5)
SHOT = RANDOM.normal(size=(226, 8)).astype(np.float32)


def latent() -> np.ndarray:
    return RANDOM.normal(size=(1, 5, 16, 2, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return fakes.write_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


def test_game_is_the_same_bytes_in_every_run(bundle: Bundle) -> None:
    def digest() -> str:
        pipeline = Pipeline.open(bundle, open_engines(bundle))
        session, sha = Session.start(bundle, 7), hashlib.sha256()
        for text in ("Mia waves.", "Tobo runs.", "Mia flies."):
            for event in pipeline.run_turn(session, Instruction(text)):
                if isinstance(event, FrameReady):
                    sha.update(event.frame.tobytes())
        return sha.hexdigest()

    assert digest() == digest()


def test_denoising_is_the_contracts_arithmetic(bundle: Bundle) -> None:
    plan, start = fakes.plan_with_reuse(5), latent()
    noises = [latent() for _ in plan.steps]
    denoising = open_engines(bundle).denoiser.start(start, SHOT, 10.0)
    now, x0_prev, difference = start, np.zeros_like(start), np.zeros_like(start)
    for step, noise in zip(plan, noises, strict=True):
        denoising.step(np.array(step.coefficients, np.float32), float(step.timestep), step.rows, noise)
        c = step.coefficients
        rows = [np.tanh(now + SHOT.mean()) * (row + 1) / 4 + 0.1 for row in step.rows]
        difference = rows[-1] - rows[0] + c.reuse * difference
        x0 = c.signal * now - c.sigma * (rows[-1] + c.guidance_minus_one * difference)
        now = c.c_latent * now + c.c_x0 * x0 + c.c_x0_prev * x0_prev + c.c_noise * noise
        x0_prev = x0
        np.testing.assert_allclose(denoising.latent(), now, atol=1e-4)


def test_denoising_leaves_the_callers_noise_and_earlier_latents_alone(bundle: Bundle) -> None:
    start, noise = latent(), latent()
    kept = start.copy(), noise.copy()
    denoising = open_engines(bundle).denoiser.start(start, SHOT, 10.0)
    results = []
    for step in even_plan(4):
        denoising.step(np.array(step.coefficients, np.float32), 500.0, step.rows, noise)
        results.append((denoising.latent(), denoising.latent().copy()))
    assert (start == kept[0]).all() and (noise == kept[1]).all()
    assert all((held == copied).all() for held, copied in results)


def test_predictor_extends_the_cache_of_its_prefill(bundle: Bundle) -> None:
    predictor, prompt_builder = open_engines(bundle).predictor, PromptBuilder.from_bundle(bundle)
    prompt = prompt_builder.build(
        "Mia waves.", [HistoryTurn("Tobo runs.", GameState(1, 2, 3, 4), SHOT.astype(np.float16))]
    )
    prefill = prefill_prompt(predictor, prompt)
    assert prefill.shot.shape == (226, 8) and prefill.logits.shape == (fakes.vocabulary(),)
    logits, cache = predictor.extend(np.array([3, 4, 5]), prefill.cache)
    again, _ = predictor.extend(np.array([3, 4, 5]), prefill.cache)
    assert (logits == again).all(), "extending must not change the cache it was given"
    longer, _ = predictor.extend(np.array([6]), cache)
    assert prompt.history is not None
    total = 0.5 * SHOT.astype(np.float16).sum(dtype=float) + 3 + 4 + 5 + 6
    for part in (prompt.history, prompt.turn):
        total += float(part.ids[0, part.history_index[-1] < 0].sum())
    np.testing.assert_allclose(longer[:3], np.cos(np.arange(3) * total * 2 * 0.01), atol=0.05)


def test_vae_gives_every_pixel_format_and_both_ways_up(bundle: Bundle) -> None:
    vae, whole = open_engines(bundle).vae, latent()
    first, caches = vae.first(whole[:, :3], (0, 1, 2), False)
    rest = vae.next(whole[:, 3:], caches, (0, 1, 2), False)
    assert first.shape == (9, 16, 24, 3) and rest.shape == (8, 16, 24, 3) and first.dtype == np.uint8
    bgra, _ = vae.first(whole[:, :3], (2, 1, 0, 3), True)
    assert (bgra[:, ::-1, :, [2, 1, 0]] == first).all() and (bgra[..., 3] == 255).all()


def test_cuda_is_refused_where_there_is_none(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "check_libraries", lambda config, reader: None)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(BackendError, match=r"no CUDAExecutionProvider; found CPUExec.*pip install 'onnxruntime-gpu"):
        open_engines(bundle, EngineConfig("cuda"))


def test_silent_fall_back_to_the_cpu_is_refused_with_the_loaders_reason(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "check_libraries", lambda config, reader: None)
    real, loaded = onnxruntime.InferenceSession, []
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: loaded.append("cuda"), raising=False)
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda path, options, providers: real(path, options, ["CPUExecutionProvider"])
    )
    backend._load_cuda.cache_clear()
    said = (
        r"\.onnx: CUDAExecutionProvider did not start; found CPUExecutionProvider in its place; "
        r".*onnxruntime_providers_cuda.*; run: pip install 'onnxruntime-gpu\[cuda,cudnn\]'.*or play with --device cpu"
    )
    with pytest.raises(BackendError, match=said):
        open_engines(bundle, EngineConfig("cuda"))
    assert loaded == ["cuda"], "libraries that came with pip are loaded before the first session"
    backend._load_cuda.cache_clear()


def test_part_with_other_inputs_is_refused_and_named(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    parts = dict(bundle.manifest.parts)
    parts["denoiser"] = parts["vae_first"]
    mixed = write_manifest(bundle.folder, replace(bundle.manifest, parts=parts))
    with pytest.raises(
        BackendError, match=r"vae_first\.onnx: the part has other inputs than this version expects; found latent, ch"
    ):
        open_engines(mixed)


def test_part_that_is_no_onnx_file_is_named(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    (bundle.folder / "denoiser.onnx").write_bytes(b"not a graph")
    with pytest.raises(BackendError, match=r"denoiser\.onnx: the part cannot be loaded"):
        open_engines(write_manifest(bundle.folder, bundle.manifest))


def test_bundle_without_a_part_is_refused(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    parts = {name: part for name, part in bundle.manifest.parts.items() if name != "vae_next"}
    with pytest.raises(BundleError, match="no part 'vae_next'"):
        open_engines(write_manifest(bundle.folder, replace(bundle.manifest, parts=parts)))


def test_misshapen_input_is_an_error_of_ours(bundle: Bundle) -> None:
    denoising = open_engines(bundle).denoiser.start(latent(), SHOT[:, :4], 10.0)
    with pytest.raises(BackendError, match="a part failed to run"):
        denoising.step(np.zeros(8, np.float32), 500.0, (1,), latent())


ILLEGAL = "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; expr=cudaStreamSynchronize(stream_);"


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (f"[ONNXRuntimeError] : 1 : FAIL : cuda_call.cc:121 onnxruntime::CudaCall {ILLEGAL}", True),
        ("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED ; GPU=0", True),
        ("CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc((void**)&p, size);", False),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0", False),
        ("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: shot", False),
    ],
)
def test_cuda_failure_of_a_session_means_a_lost_device_unless_memory_is_missing(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, text: str, lost: bool
) -> None:
    def fail(session: onnxruntime.InferenceSession, binding: onnxruntime.IOBinding) -> None:
        raise RuntimeError(text)

    denoising = open_engines(bundle).denoiser.start(latent(), SHOT, 10.0)
    monkeypatch.setattr(onnxruntime.InferenceSession, "run_with_iobinding", fail)
    with pytest.raises(BackendError, match="lost to this process" if lost else "a part failed to run") as caught:
        denoising.step(np.zeros(8, np.float32), 500.0, (1,), latent())
    assert isinstance(caught.value, DeviceLostError) == lost and text in str(caught.value)


def test_weights_in_a_data_file_are_loaded_and_verified(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    path = bundle.part_path("denoiser")
    model = onnx.load(path)
    # Only what has raw data moves out: shape arithmetic needs its integers inside the graph.
    for constant in (constant for constant in model.graph.initializer if constant.float_data):
        constant.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(constant), constant.name))
    onnx.save_model(model, path, save_as_external_data=True, location="denoiser.weights", size_threshold=0)
    parts = dict(bundle.manifest.parts) | {"denoiser": Part("denoiser.onnx", "fp32", ("denoiser.weights",))}
    apart = write_manifest(bundle.folder, replace(bundle.manifest, parts=parts))
    start, step, steps = latent(), even_plan(4).steps[0], []
    for opened in (bundles.load(apart.folder), fakes.write_bundle(tmp_path / "whole")):
        denoising = open_engines(opened).denoiser.start(start, SHOT, 2.5)
        denoising.step(np.array(step.coefficients, np.float32), 999.0, step.rows, start)
        steps.append(denoising.latent())
    assert (steps[0] == steps[1]).all()
    weights = bundle.folder / "denoiser.weights"
    weights.write_bytes(bytes([weights.read_bytes()[0] ^ 1]) + weights.read_bytes()[1:])
    with pytest.raises(BundleFileError, match=r"denoiser\.weights"):
        bundles.load(apart.folder)
