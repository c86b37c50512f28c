"""The PyTorch engines on a GPU: close to the CPU's results, equal bytes under graphs, no waits within a turn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch_parts import PLAN, SHAPE, Turn, answers, engines, frames, noise, prompt

from animegamer_rt.backends.torch.device import CudaTorchDevice, GraphCache
from animegamer_rt.backends.torch.kernels import open_kernels
from animegamer_rt.backends.torch.noise import NoiseSource
from animegamer_rt.noise import Noise, draw_turn

# PyTorch warns once about its own checks, and cuDNN about plans that fail.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

ALLOWED = {torch.float32: 1e-3, torch.bfloat16: 4e-2, torch.float16: 5e-3}


@pytest.mark.parametrize("dtype", list(ALLOWED))
def test_parts_answer_as_on_the_cpu(dtype: torch.dtype) -> None:
    part, exact, turn, given, latent = engines(CudaTorchDevice(dtype)), engines(), Turn(), prompt(2), noise(*SHAPE)
    for _ in range(3):
        pairs = [(turn.latents(part)[0], turn.latents(exact)[0]), (frames(part, latent), frames(exact, latent))]
        pairs += zip(answers(part, given), answers(exact, given), strict=True)
        for found, expected in pairs:
            difference = np.linalg.norm(found.astype(np.float64) - expected)
            assert difference <= ALLOWED[dtype] * np.linalg.norm(expected.astype(np.float64))


def test_graphs_give_the_bytes_of_running_eagerly() -> None:
    graphs, eager = (
        engines(CudaTorchDevice(torch.bfloat16)),
        engines(CudaTorchDevice(torch.bfloat16, captures=False)),
    )
    for scope in (0.5, 10.0, 40.0, 2.5):
        turn, given, latent = Turn(scope), prompt(1, seed=int(scope)), noise(*SHAPE)
        np.testing.assert_array_equal(turn.latents(graphs)[0], turn.latents(eager)[0])
        for found, expected in zip(answers(graphs, given), answers(eager, given), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(frames(graphs, latent), frames(eager, latent))


def test_vae_in_parts_with_its_caches_on_the_host_is_held_by_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = engines()
    monkeypatch.setattr(CudaTorchDevice, "free_bytes", lambda torch_device: 0)
    graphs, eager = (engines(CudaTorchDevice(torch.bfloat16, captures)) for captures in (True, False))
    for _ in range(4):
        latent = noise(*SHAPE)
        found, expected = frames(graphs, latent), frames(exact, latent).astype(np.float64)
        np.testing.assert_array_equal(found, frames(eager, latent))
        assert np.linalg.norm(found - expected) <= ALLOWED[torch.bfloat16] * np.linalg.norm(expected)


def test_a_prompt_read_in_another_thread_while_a_turn_is_denoised_changes_neither() -> None:
    alone, part, turn, given = (
        engines(CudaTorchDevice(torch.bfloat16)),
        engines(CudaTorchDevice(torch.bfloat16)),
        Turn(),
        prompt(1),
    )
    expected = turn.latents(alone)[0], answers(alone, given)
    with ThreadPoolExecutor(1) as ahead:
        for _ in range(4):
            reading = ahead.submit(answers, part, given)
            np.testing.assert_array_equal(turn.latents(part)[0], expected[0])
            for found, exact in zip(reading.result(), expected[1], strict=True):
                np.testing.assert_array_equal(found, exact)


def test_kernels_play_the_plain_turn_and_are_held_by_graphs() -> None:
    kernels, words = open_kernels(None, torch.device("cuda"))
    assert kernels is not None, words
    graphs, exact = engines(CudaTorchDevice(torch.bfloat16), kernels=kernels), engines()
    eager = engines(CudaTorchDevice(torch.bfloat16, captures=False), kernels=kernels)
    for scope in (0.5, 10.0, 40.0):
        turn, latent = Turn(scope), noise(*SHAPE)
        for part in (lambda one, turn=turn: turn.latents(one)[0], lambda one, latent=latent: frames(one, latent)):
            found, expected = part(graphs), part(exact).astype(np.float64)
            np.testing.assert_array_equal(found, part(eager))
            assert np.linalg.norm(found - expected) <= ALLOWED[torch.bfloat16] * np.linalg.norm(expected)


def drawn_on_the_gpu(scope: float) -> Turn:
    turn = Turn(scope)
    turn.start, *turn.noises = draw_turn(7, int(scope), [np.ones(1, np.float32)] * len(PLAN), SHAPE)
    return turn


def test_noise_on_the_gpu_has_the_bits_of_numpy() -> None:
    torch_device = CudaTorchDevice(torch.bfloat16)
    with torch_device.use():
        source, out = NoiseSource(torch_device), torch_device.zeros((432_000,), torch.float32)
        drawn = Noise(2**64 + 7, 3, 4, np.array([0.6, -0.3, 0.7], np.float32), (432_000,))
        source.fill(out, drawn)
        np.testing.assert_array_equal(torch_device.to_host(out).numpy(), drawn.array())


def test_work_before_its_capture_takes_the_memory_that_earlier_graphs_hold() -> None:
    torch_device = CudaTorchDevice(torch.bfloat16)
    graphs = GraphCache(torch_device)
    with torch_device.use():
        out = torch_device.zeros((1,))

        def work() -> None:
            out.copy_(torch_device.zeros((2**27,)).sum())

        for _ in range(3):
            graphs.run("a plan's step", work)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        assert before >= 2**28
        for _ in range(3):
            graphs.run("another plan's", work)
            assert torch.cuda.memory_reserved() < before + 2**27


def test_no_step_of_a_turn_waits_for_the_gpu() -> None:
    part, turn = engines(CudaTorchDevice(torch.bfloat16)), drawn_on_the_gpu(10.0)
    for _ in range(2):
        turn.latents(part)
    denoising = part.denoiser.start(turn.start, turn.shot, turn.scope)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for step, coefficients, drawn in zip(PLAN, PLAN.coefficients(), turn.noises, strict=True):
            denoising.step(coefficients, float(step.timestep), step.rows, drawn)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert np.isfinite(denoising.latent()).all()


def test_host_that_runs_ahead_of_the_gpu_overwrites_nothing() -> None:
    torch_device = CudaTorchDevice(torch.bfloat16)
    part, turns = engines(torch_device), [drawn_on_the_gpu(scope) for scope in (2.5, 15.0, 40.0)]
    expected = [turn.latents(part)[0] for turn in turns]
    for turn, latent in zip(turns, expected, strict=True):
        with torch_device.use():
            torch.cuda._sleep(10**8)  # some 50 ms in which the host stages steps
        np.testing.assert_array_equal(turn.latents(part)[0], latent)
