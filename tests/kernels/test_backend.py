"""The PyTorch backend with the kernels: turns and clips are those of plain operators."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernel_results import relative_error
from torch_parts import (
    PLAN,
    SHAPE,
    Turn,
    answers,
    engines,
    frames,
    narrowing,
    networks,
    noise,
    prompt,
    small_vae,
)
from torch_tape import TapeDevice

from animegamer_kernels import Library
from animegamer_kernels.library import FILE_NAME, PATH_VARIABLE
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.torch import kernels as backend_kernels
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.kernels import Kernels, open_kernels
from animegamer_rt.backends.torch.packed_linear import PackedLinear, use_kernels
from animegamer_rt.backends.torch.predictor import Predictor as PredictorPart
from animegamer_rt.backends.torch.predictor import merge_layers
from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8
from animegamer_rt.bundle.denoise_plan import build_plan
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.errors import BackendError
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.noise import as_array
from animegamer_rt.stages.denoiser import Denoiser

CPU = torch.device("cpu")
NEAR = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
"""Relative error allowed for six steps, against plain operators in float32."""
SHORT = build_plan(even_timesteps(3), branches=["pair", "reuse", "conditional"])
NEAR_ROWWISE = 2e-2
"""Relative error allowed where codes of both inputs of a product may round the other way."""

pytestmark = pytest.mark.usefixtures("one_thread")


def assert_clips_close(found: np.ndarray, expected: np.ndarray) -> None:
    """Asserts that bytes differ by at most 1, and in less than 0.1 % of the elements."""
    assert found.shape == expected.shape and found.std() > 5
    assert np.abs(found.astype(np.int16) - expected).max() <= 1
    assert (found != expected).mean() < 1e-3


def test_turn_by_kernels_is_the_plain_turn_step_by_step(both_kernels: Kernels) -> None:
    turn, every = Turn(), range(len(PLAN) - 1)
    found, expected = turn.latents(engines(kernels=both_kernels), every), turn.latents(engines(), every)
    assert all(0 < relative_error(*pair) <= NEAR[torch.float32] for pair in zip(found, expected, strict=True))


def test_noise_that_the_kernel_draws_gives_the_latent_of_the_same_numbers(kernels: Kernels) -> None:
    turn, device = Turn(), TapeDevice()
    denoiser = Denoiser(engines(device, kernels=kernels).denoiser, turn.plan, SHAPE)
    for number in (1, 2, 3):
        drawn = list(denoiser.draw_noise(2**64 + 7, number))
        *_, found = denoiser.denoise(turn.shot, turn.scope, iter(drawn))
        *_, expected = denoiser.denoise(turn.shot, turn.scope, map(as_array, drawn))
        np.testing.assert_array_equal(found.latent, expected.latent)
    assert device.replayed


@pytest.mark.parametrize("rowwise", [FP8, INT8], ids=["fp8", "int8"])
def test_turn_by_kernels_in_8_bits_is_the_plain_one(both_kernels: Kernels, rowwise: torch.dtype) -> None:
    turn = Turn(plan=SHORT)
    parts = (engines(plan=SHORT, rowwise=rowwise, kernels=which) for which in (both_kernels, None))
    found, plain = (turn.latents(part)[0] for part in parts)
    assert 0 < relative_error(found, plain) < NEAR_ROWWISE


def test_clip_by_kernels_is_the_plain_clip(both_kernels: Kernels) -> None:
    part, plain, latent = engines(kernels=both_kernels), engines(), 2 * noise(*SHAPE)
    for order, flip in (((0, 1, 2), False), ((2, 1, 0, 3), True)):
        found, expected = frames(part, latent, order, flip), frames(plain, latent, order, flip)
        assert found.shape == (17, 16, 24, len(order))
        assert_clips_close(found, expected)


def test_clip_in_parts_by_kernels_is_the_plain_clip(both_kernels: Kernels) -> None:
    latent, network = 2 * noise(*SHAPE), narrowing()
    vaes = (small_vae(0, which, network)[1] for which in (both_kernels, None))
    found, expected = (frames(Engines(None, None, vae), latent) for vae in vaes)  # type: ignore[arg-type]
    assert_clips_close(found, expected)


def test_graphs_hold_the_kernels(kernels: Kernels) -> None:
    torch_device = TapeDevice()
    part, plain = engines(torch_device, kernels=kernels), engines(kernels=kernels)
    for scope in (2.5, 15.0, 2.5):
        turn, latent = Turn(scope), noise(*SHAPE)
        np.testing.assert_array_equal(turn.latents(part)[0], turn.latents(plain)[0])
        for flip in (False, True):
            np.testing.assert_array_equal(frames(part, latent, flip=flip), frames(plain, latent, flip=flip))
    # A CFG pair, a single row, two chunks: a flip needs no graph.
    assert torch_device.captured == 4


def packed_predictor(four_bits: bool) -> Predictor:
    """A small predictor whose blocks hold codes of 4 or 8 bits."""
    network, random = networks()[0], torch.Generator().manual_seed(0)
    highest = 8 if four_bits else 128
    for name, layer in list(network.blocks.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            codes = torch.randint(-highest, highest, layer.weight.shape, generator=random, dtype=torch.int8)
            scales = torch.rand(layer.out_features, layer.in_features // 16, generator=random) / (4 * highest)
            network.blocks.set_submodule(name, PackedLinear.pack(codes, scales, four_bits))
    return network


@pytest.mark.parametrize("four_bits", [True, False], ids=["4-bit", "8-bit"])
def test_packed_predictor_gives_the_same_answers_with_kernels(both_kernels: Kernels, four_bits: bool) -> None:
    torch_device, given = TapeDevice(), prompt(1)
    ours, plain = packed_predictor(four_bits), packed_predictor(four_bits)
    use_kernels(ours, both_kernels)
    layers = [layer for layer in ours.modules() if isinstance(layer, PackedLinear)]
    assert len(layers) == 14 and all(layer.kernels is both_kernels for layer in layers)
    parts = (
        PredictorPart(where, network.eval(), merge_layers(network), 720)
        for where, network in ((torch_device, ours), (TorchDevice(), plain))
    )
    found, expected = (answers(Engines(part, None, None), given) for part in parts)  # type: ignore[arg-type]
    for one, other in zip(found, expected, strict=True):
        assert one.std() > 0.01
        np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-4)
    assert torch_device.captured > 0


def test_kernels_are_for_gpus_and_can_be_switched_off(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setenv(PATH_VARIABLE, str(library.path))
    monkeypatch.setattr(Library, "has_cuda", True)
    monkeypatch.setattr(Library, "runs_here", True)
    assert open_kernels(None, cuda) == (Kernels(str(library.path)), f"kernels of {FILE_NAME}")
    assert open_kernels(None, CPU)[0] is None and open_kernels(False, cuda)[0] is None
    monkeypatch.setattr(Library, "runs_here", False)
    for asked_for in (library.path, None):  # by the caller, and by the variable
        with pytest.raises(BackendError, match="do not run on this GPU: .*make kernels"):
            open_kernels(asked_for, cuda)
    with monkeypatch.context() as unset:
        unset.delenv(PATH_VARIABLE)
        unset.setattr(backend_kernels, "find_library", lambda: library.path)
        found, words = open_kernels(None, cuda)
        assert found is None and words.startswith(f"plain operators, as {FILE_NAME} was built for other GPUs")
    monkeypatch.setattr(Library, "has_cuda", False)
    with pytest.raises(BackendError, match=rf"built without CUDA; .*{PATH_VARIABLE}=off"):
        open_kernels(None, cuda)
    monkeypatch.setenv(PATH_VARIABLE, "off")
    assert open_kernels(None, cuda) == (None, "plain operators, as no kernels were built or they are turned off")
