"""The real onnxruntime, on the tiny bundle's real ONNX parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import animegamer_rt
import fakes
from animegamer_rt.backends import registry
from animegamer_rt.backends.onnxruntime import loader as backend
from animegamer_rt.backends.onnxruntime.engines import Predictor, _libm, flushed_denormals
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError, BundleError, DeviceLostError
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import NEUTRAL

RANDOM = np.random.default_rng(5)
SHOT = RANDOM.normal(size=(226, 8)).astype(np.float32)


def latent() -> np.ndarray:
    return RANDOM.normal(size=(1, 5, 16, 2, 3)).astype(np.float32)


def test_game_is_the_same_bytes_in_every_run(bundle: Bundle) -> None:
    games = [animegamer_rt.open(bundle).start(seed=7) for _ in range(2)]
    for text in ("Mia waves.", "Tobo runs.", "Mia flies."):
        np.testing.assert_array_equal(*(game.turn(text).frames for game in games))


def numbers(cache: object) -> np.ndarray:
    assert isinstance(cache, list)
    return np.stack([value.numpy() for value in cache])


def test_shared_tokens_and_history_in_blocks_give_the_same_numbers_as_one_run() -> None:
    pocket = open_bundle("pocket")
    history = [HistoryTurn(f"Mirel waves at {n}.", NEUTRAL, RANDOM.normal(size=(226, 192)).astype("f2")) for n in "abc"]
    prompts = PromptBuilder.from_bundle(pocket)
    prompt, shorter = prompts.build("Tofi jumps.", history), prompts.build("", history[:2]).history
    engine = open_engines(pocket, EngineConfig(threads=1)).predictor
    assert isinstance(engine, Predictor) and prompt.history is not None and shorter is not None
    whole = engine._run(prompt.history, engine._nothing).cache
    blocks = engine.prefill(prompt.history).cache
    turn, (shot, state) = engine.prefill(prompt.turn, blocks), [engine._run(row, whole) for row in prompt.turn.rows()]
    # Other processors may sum in another order.
    for ours, theirs in ((turn.shot, shot.shot), (turn.logits, state.logits), (numbers(blocks), numbers(whole))):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)
    engine.prefill(shorter)
    kept = engine.prefill(prompt.history).cache  # its first blocks
    assert (numbers(kept) == numbers(blocks)).all(), "a replay has the same bits, whatever was read before"


@pytest.mark.skipif(_libm() is None, reason="glibc on x86-64 only")
def test_denormals_are_flushed_only_while_a_part_runs(bundle: Bundle) -> None:
    denormal = np.full(1, 1e-40, np.float32)
    engines = open_engines(bundle)
    with flushed_denormals():
        assert not (denormal * np.float32(0.5)).any()
    engines.predictor.prefill(PromptBuilder.from_bundle(bundle).build("Mia waves.", ()).turn)
    assert (denormal * np.float32(0.5)).all()


def test_silent_fall_back_to_the_cpu_is_refused_with_a_reason(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "check_libraries", lambda config, reader: None)
    real, loaded = onnxruntime.InferenceSession, []
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: loaded.append("cuda"), raising=False)
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda path, options, providers: real(path, options, ["CPUExecutionProvider"])
    )
    backend._load_cuda.cache_clear()
    said = (
        r"\.onnx: CUDAExecutionProvider did not start; found CPUExecutionProvider instead; "
        r".*onnxruntime_providers_cuda.*; run: pip install 'onnxruntime-gpu\[cuda,cudnn\]'.*or use --device cpu"
    )
    with pytest.raises(BackendError, match=said):
        open_engines(bundle, EngineConfig("cuda"))
    assert loaded == ["cuda"], "libraries that came with pip are loaded before the first session"
    backend._load_cuda.cache_clear()


def test_part_that_cannot_be_used_is_refused_and_named(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    parts = dict(bundle.manifest.parts)
    parts["denoiser"] = parts["vae_first"]
    mixed = write_manifest(bundle.folder, replace(bundle.manifest, parts=parts))
    with pytest.raises(
        BackendError,
        match=r"vae_first\.onnx: the part.s inputs are not those that this version expects; found latent, ch",
    ):
        open_engines(mixed)
    without = {name: part for name, part in bundle.manifest.parts.items() if name != "vae_next"}
    with pytest.raises(BundleError, match="no part 'vae_next'"):
        open_engines(write_manifest(bundle.folder, replace(bundle.manifest, parts=without)))
    (bundle.folder / "denoiser.onnx").write_bytes(b"not a graph")
    with pytest.raises(BackendError, match=r"denoiser\.onnx: the part cannot be loaded"):
        open_engines(write_manifest(bundle.folder, bundle.manifest))


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
    with pytest.raises(BackendError, match="lost the GPU" if lost else "a part failed to run") as caught:
        denoising.step(np.zeros(8, np.float32), 500.0, (1,), latent())
    assert isinstance(caught.value, DeviceLostError) == lost and text in str(caught.value)
