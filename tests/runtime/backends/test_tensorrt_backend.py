"""The TensorRT backend on a device of host memory: same numbers as onnxruntime, buffers once, graphs, refusals."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_device import MOST, SCRATCH_BYTES, FakeDevice, with_engines

import fakes
from animegamer_rt import Player
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.onnxruntime import loader as ort_backend
from animegamer_rt.backends.tensorrt import runtime_cache
from animegamer_rt.backends.tensorrt.engine_id import engine_graphs
from animegamer_rt.backends.tensorrt.loader import load
from animegamer_rt.backends.tensorrt.memory_budget import RESERVE_BYTES, PartMemory, plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError, EngineStaleError
from animegamer_rt.events import FrameReady, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.predictor import Prediction, prefill_prompt
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import GameState, Instruction

RANDOM = np.random.default_rng(0)
SHOT = RANDOM.standard_normal((226, 8), dtype=np.float32)


@pytest.fixture(autouse=True)
def compiled_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runtime_cache.FOLDER, str(tmp_path / "cache"))


def latent() -> np.ndarray:
    return RANDOM.standard_normal((1, 5, 16, 2, 3), dtype=np.float32)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return with_engines(fakes.write_bundle(tmp_path_factory.mktemp("bundles") / "tiny"))


def opened(bundle: Bundle, **options: Any) -> tuple[Engines, FakeDevice]:
    device = FakeDevice(**options)
    return load(bundle, EngineConfig("tensorrt"), device=device, tell=lambda _: None), device


def frames_of(bundle: Bundle, engines: Engines) -> list[bytes]:
    game = Player(bundle, engines).start(seed=7)
    return [game.turn(text).frames.tobytes() for text in ("Mia waves.", "Tobo runs.")]


@pytest.mark.parametrize(("captures", "draws"), [(True, True), (True, False), (False, True)])
def test_game_is_the_one_that_onnxruntime_plays(bundle: Bundle, captures: bool, draws: bool) -> None:
    engines, device = opened(bundle, captures=captures, draws=draws)
    assert frames_of(bundle, engines) == frames_of(bundle, ort_backend.load(bundle, EngineConfig(threads=1)))
    assert ("launch" in device.calls) == captures and ("draw" in device.calls) == draws


def test_all_memory_is_allocated_before_the_first_turn(bundle: Bundle) -> None:
    engines, device = opened(bundle)
    before = list(device.blocks)
    frames_of(bundle, engines)
    assert list(device.blocks) == before and len(before) == 3, "one block of buffers, two scratches"


def test_host_values_are_not_overwritten_while_the_gpu_may_read_them(bundle: Bundle) -> None:
    start, noises = latent(), [latent() for _ in range(6)]
    results = []
    for engines in (opened(bundle)[0], ort_backend.load(bundle, EngineConfig(threads=1))):
        denoising = engines.denoiser.start(start, SHOT, 10.0)
        for step, noise in zip(fakes.plan_with_reuse(6), noises, strict=True):
            passed = noise.copy()
            denoising.step(np.array(step.coefficients, np.float32), float(step.timestep), step.rows, passed)
            passed[...] = np.nan
        results.append(denoising.latent())
    np.testing.assert_array_equal(*results)


def test_extending_leaves_the_cache_it_was_given_and_refuses_one_whose_memory_was_taken(bundle: Bundle) -> None:
    predictor = opened(bundle)[0].predictor
    prefill = predictor.prefill(PromptBuilder.from_bundle(bundle).build("Mia waves.", ()).turn)
    logits, longer = predictor.extend(np.array([3, 4, 5]), prefill.cache)
    again, longer = predictor.extend(np.array([3, 4, 5]), prefill.cache)
    np.testing.assert_array_equal(logits, again)
    predictor.extend(np.array([6]), longer)
    with pytest.raises(BackendError, match="after a later prompt or extend"):
        predictor.extend(np.array([6]), prefill.cache)


def test_turn_that_was_read_leaves_its_history_to_be_read_over_again(bundle: Bundle) -> None:
    prompt_builder, predictor = PromptBuilder.from_bundle(bundle), opened(bundle)[0].predictor
    past = [HistoryTurn("Tobo runs.", GameState(1, 2, 3, 4), SHOT.astype(np.float16))]
    prompts = [prompt_builder.build(text, past) for text in ("Mia waves.", "Tobo flies on a kite.")]
    assert prompts[0].history is not None
    history = predictor.prefill(prompts[0].history).cache
    over = [predictor.prefill(prompt.turn, history) for prompt in prompts]
    for found, prompt in zip(over, prompts, strict=True):
        expected = prefill_prompt(ort_backend.load(bundle, EngineConfig(threads=1)).predictor, prompt)
        np.testing.assert_array_equal(found.shot, expected.shot)
        np.testing.assert_array_equal(found.logits, expected.logits)
    predictor.extend(np.array([6]), over[1].cache)
    with pytest.raises(BackendError, match="after a later prompt or extend"):
        predictor.prefill(prompts[0].turn, history)


def test_an_earlier_turn_or_clip_cannot_go_on_in_the_buffers_of_the_next(bundle: Bundle) -> None:
    engines, whole = opened(bundle)[0], latent()
    _, caches = engines.vae.first(whole[:, :3], (0, 1, 2), False)
    engines.vae.first(whole[:, :3], (0, 1, 2), False)
    with pytest.raises(BackendError, match="after another clip had started"):
        engines.vae.next(whole[:, 3:], caches, (0, 1, 2), False)
    earlier = engines.denoiser.start(whole, SHOT, 1.0)
    engines.denoiser.start(whole, SHOT, 1.0)
    with pytest.raises(BackendError, match="after the next turn had started"):
        earlier.latent()


@pytest.mark.parametrize("axis", ["tokens", "cached_tokens"])
def test_prompt_longer_than_the_engine_is_refused_with_what_to_do(bundle: Bundle, axis: str) -> None:
    device = FakeDevice(MOST | {axis: 240})
    engines = load(bundle, EngineConfig("tensorrt"), device=device, tell=lambda _: None)
    with pytest.raises(BackendError, match="larger than the engine of predictor .*--longest-prompt"):
        engines.predictor.prefill(PromptBuilder.from_bundle(bundle).build("Mia waves and waves. " * 9, ()).turn)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": "1.6.0"}, "another version; found 1.6.0; expected 1.7.1.116"),
        ({"arch": "sm86"}, "another arch; found sm86; expected sm89"),
        ({"sources": "81aa" * 16}, "built from other weights"),
    ],
)
def test_stale_or_foreign_engine_is_refused_with_the_command(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    bundle = with_engines(fakes.write_bundle(tmp_path / "tiny"), **change)
    with pytest.raises(EngineStaleError, match=rf"{text}.*build-engines --bundle .*tiny --gpu sm89"):
        load(bundle, EngineConfig("tensorrt"), device=FakeDevice())


def test_engine_that_was_never_built_is_named_with_the_command(bundle: Bundle) -> None:
    device = FakeDevice(arch="sm120")
    with pytest.raises(BackendError, match=r"no engine of predictor for sm120; found predictor-sm89; .*--gpu sm120"):
        load(bundle, EngineConfig("tensorrt"), device=device)


def test_weights_are_streamed_only_as_far_as_needed_and_the_predictors_first() -> None:
    needs = {"predictor": PartMemory(1000, 900), "denoiser": PartMemory(500, 500)}
    whole = plan(needs, 100, (50,), RESERVE_BYTES + 1650)
    assert whole.fits and whole.streamed_bytes == 0 and whole.on_gpu_bytes == 1650
    short = plan(needs, 100, (50,), RESERVE_BYTES + 1400)
    assert short.resident == {"predictor": 650, "denoiser": 500} and short.on_gpu_bytes == 1400
    least = plan(needs, 100, (50,), RESERVE_BYTES + 250)
    assert least.resident == {"predictor": 0, "denoiser": 0}
    least.check()
    with pytest.raises(BackendError, match="do not fit this GPU"):
        plan(needs, 100, (50,), RESERVE_BYTES + 249).check()


def test_predictor_has_its_own_scratch_only_where_no_weights_are_streamed_for_it(bundle: Bundle) -> None:
    def opened_with(free: int) -> tuple[Engines, FakeDevice, str]:
        printed: list[str] = []
        device = FakeDevice(streamable=2**20, free=free)
        return load(bundle, EngineConfig("tensorrt"), device=device, tell=printed.append), device, printed[0]

    roomy, device, text = opened_with(2**33)
    buffers, shared, own = (len(block) for block in device.blocks.values())
    assert (shared, own) == (SCRATCH_BYTES["denoiser"], SCRATCH_BYTES["predictor"])
    assert roomy.concurrent_prediction and len(device.streams) == 2 and "predicted while" in text
    weights = 2 * 2**20 * len(device.recalled)
    least = weights + buffers + shared + own + RESERVE_BYTES
    assert opened_with(least)[0].concurrent_prediction
    for free in (least - 1, weights + buffers + shared + RESERVE_BYTES - 1):
        short, device, text = opened_with(free)
        assert not short.concurrent_prediction and len(device.streams) == 1 and "predicted after" in text
        assert len(device.blocks) == 2, "one scratch for all"
        assert ("streamed" in short.device) == (free < least - 1)
        assert frames_of(bundle, short) == frames_of(bundle, roomy)


def two_players(bundle: Bundle, engines: Engines, *, ahead: bool) -> str:
    """Two games by turns; `ahead`: a turn is predicted in a thread of its own while the one before it is denoised."""
    pipeline, sha = Pipeline.open(bundle, engines), hashlib.sha256()
    mia, tobo = Session.start(bundle, 7), Session.start(bundle, 8)
    waiting = [(mia, "Mia waves."), (tobo, "Tobo runs."), (mia, "Mia flies on a kite."), (tobo, "Tobo sleeps.")]
    prediction: Future[Prediction] | None = None
    with ThreadPoolExecutor(1) as thread:
        while waiting:
            session, text = waiting.pop(0)
            made = prediction.result() if prediction else None
            prediction = None
            for event in pipeline.run_turn(session, Instruction(text), prediction=made):
                if isinstance(event, StatePredicted) and waiting and ahead:
                    follower, text = waiting[0]
                    prediction = thread.submit(pipeline.predictor.predict, follower.history, Instruction(text))
                elif isinstance(event, FrameReady):
                    sha.update(event.frame.tobytes())
    return sha.hexdigest()


@pytest.mark.parametrize("captures", [True, False])
def test_game_with_turns_predicted_ahead_is_the_one_without(bundle: Bundle, captures: bool) -> None:
    engines = opened(bundle, captures=captures)[0]
    assert engines.concurrent_prediction
    expected = two_players(bundle, ort_backend.load(bundle, EngineConfig(threads=1)), ahead=False)
    assert [two_players(bundle, engines, ahead=ahead) for ahead in (True, False, True)] == [expected] * 3


def test_what_was_compiled_is_kept_once_after_the_first_turn_and_given_to_the_next_start(bundle: Bundle) -> None:
    engines, first = opened(bundle)
    frames_of(bundle, engines)
    parts = engine_graphs(bundle)
    compiled = sorted(call for call in first.calls if call.startswith("compiled"))
    assert compiled == sorted(f"compiled {part}" for part in parts)
    second = opened(bundle)[1]
    assert set(first.recalled.values()) == {None}
    assert second.recalled == {f"{part}-sm89": f"kernels of {part}".encode() for part in parts}
