"""Claims about the denoiser, the encoder and the step around them that need no recording."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from animegamer_rt.bundle.noise_schedule import Coefficients
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize, position_table
from animegamer_rt.models.denoiser_step import DenoiserStep
from animegamer_rt.models.encoder import Encoder, EncoderSize

TINY = DenoiserSize(hidden=32, layers=2, heads=2, time_width=8, latent_height=4, latent_width=6, latent_channels=3)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def latents(count: int) -> list[Tensor]:
    return [torch.randn(1, 5, 3, 4, 6) for _ in range(count)]


def test_positions_are_temporal_then_width_then_height() -> None:
    table = position_table(TINY).reshape(5, 2, 3, 32)
    temporal, width, height = table[..., :8], table[..., 8:20], table[..., 20:]
    assert torch.equal(temporal[:, 0, 0], temporal[:, 1, 2])
    assert torch.equal(width[0, 0], width[4, 1]) and torch.equal(height[0, :, 0], height[4, :, 2])
    # sin first: at index 0 the sines are 0 and the cosines 1; the first frequency is the plain index.
    assert torch.equal(temporal[0, 0, 0], torch.tensor([0.0] * 4 + [1.0] * 4))
    assert temporal[3, 0, 0, 0] == pytest.approx(torch.sin(torch.tensor(3.0)).item())
    assert width[0, 0, 2, 0] == pytest.approx(torch.sin(torch.tensor(2 / 1.875)).item())


def test_every_parameter_learns_and_the_output_has_the_latents_shape() -> None:
    denoiser = Denoiser(TINY)
    v = denoiser(
        latents(1)[0].expand(2, -1, -1, -1, -1), torch.tensor([5.0, 900.0]), torch.ones(2), torch.randn(2, 226, 32)
    )
    assert v.shape == (2, 5, 3, 4, 6)
    v.square().mean().backward()
    silent = [name for name, p in denoiser.named_parameters() if p.grad is None or p.grad.abs().sum() == 0]
    # The last block's shot tokens are read by nobody: only their modulation goes unused, within one matrix.
    assert silent == []


def test_each_condition_counts_and_zero_is_a_value_like_any_other() -> None:
    denoiser, latent = Denoiser(TINY).eval(), latents(1)[0]
    given = {"timestep": torch.tensor([500.0]), "motion_scope": torch.tensor([2.5]), "shot": torch.randn(1, 226, 32)}
    with torch.no_grad():
        before = denoiser(latent, **given)
        for which, value in given.items():
            for factor in (0.5, 0.0):
                changed = denoiser(latent, **given | {which: factor * value})
                assert not torch.allclose(before, changed, atol=1e-5), (which, factor)


def test_unconditional_shot_is_one_row_for_text_and_one_for_image() -> None:
    encoder = Encoder(EncoderSize(text_width=8, image_width=12, hidden=32))
    with torch.no_grad():
        constant = encoder.unconditional()
        shot = encoder(torch.zeros(2, 30, 8), torch.zeros(2, 196, 12))
    assert constant.shape == (226, 32)
    assert torch.equal(constant[0].expand(30, -1), constant[:30])
    assert torch.equal(constant[30].expand(196, -1), constant[30:])
    torch.testing.assert_close(shot[1], constant)


def step_of(
    coefficients: Coefficients, rows: tuple[int, ...], inputs: list[Tensor], step: DenoiserStep
) -> list[Tensor]:
    with torch.no_grad():
        return list(
            step(
                *inputs,
                torch.tensor(coefficients),
                torch.tensor([500.0]),
                torch.tensor([2.5]),
                torch.full((1, 226, 32), 0.3),
                torch.tensor(rows),
            )
        )


def test_step_is_the_interfaces_arithmetic_for_pair_conditional_and_reuse() -> None:
    denoiser, constant = Denoiser(TINY).eval(), torch.randn(226, 32)
    step = DenoiserStep(denoiser, constant)
    inputs = latents(4)
    latent, x0_prev, noise, difference = inputs
    with torch.no_grad():
        times, scopes = torch.full((2,), 500.0), torch.full((2,), 2.5)
        shots = torch.stack([constant, torch.full((226, 32), 0.3)])
        v_first, v_last = denoiser(latent.expand(2, -1, -1, -1, -1), times, scopes, shots).split(1)
    base = Coefficients(0.6, 0.8, 1.5, 0.0, 0.3, 0.7, -0.1, 0.4)
    cases = (
        (base, (0, 1), v_last - v_first),
        (base._replace(guidance_minus_one=0.0, reuse=1.0), (1,), difference),
        (base._replace(reuse=1.0), (1,), difference),
    )
    for c, rows, kept in cases:
        next_latent, x0, next_difference = step_of(c, rows, inputs, step)
        expected_x0 = c.signal * latent - c.sigma * (v_last + c.guidance_minus_one * kept)
        expected = c.c_latent * latent + c.c_x0 * expected_x0 + c.c_x0_prev * x0_prev + c.c_noise * noise
        torch.testing.assert_close(next_difference, kept, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(x0, expected_x0, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(next_latent, expected, atol=1e-5, rtol=1e-4)
