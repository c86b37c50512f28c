"""The PyTorch engines on the CPU: equal to their networks, to the recorded reference, and under graphs; choices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_parts import PLAN, SHAPE, Turn, answers, engines, frames, networks, noise, prompt, reference, small_vae
from torch_tape import TapeDevice

from animegamer_export.parity import decoding, diffusion
from animegamer_export.parity.fixtures import open_folder
from animegamer_rt.backends.interface import Engines, StateSlots
from animegamer_rt.backends.torch.device import GraphCache, TorchDevice
from animegamer_rt.backends.torch.loader import cast_for_inference
from animegamer_rt.backends.torch.noise import Philox
from animegamer_rt.backends.torch.predictor import ANSWER_TOKENS
from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8
from animegamer_rt.backends.torch.transformer import Transformer, unpatchify
from animegamer_rt.backends.torch.vae_decoder import cache_shapes, decode
from animegamer_rt.errors import BackendError, UnusableOutputError
from animegamer_rt.noise import Noise, load_table
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import Prompt

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def test_older_cache_can_be_gone_on_from_until_it_is_written_over() -> None:
    part = engines().predictor
    prefill = part.prefill(prompt(0).turn)
    tokens, others = np.array([1, 2, 3]), np.array([4, 5, 6])
    first, after_first = part.extend(tokens, prefill.cache)
    part.extend(others, after_first)
    again, _ = part.extend(tokens, prefill.cache)
    np.testing.assert_array_equal(again, first)
    with pytest.raises(BackendError, match="used after a later prompt or extend had overwritten it"):
        part.extend(others, after_first)
    part.prefill(prompt(0, seed=1).turn)
    with pytest.raises(BackendError, match="used after a later prompt"):
        part.extend(tokens, prefill.cache)


def test_history_that_was_read_once_can_be_gone_on_from_by_one_turn_after_the_other() -> None:
    part, given, other = engines().predictor, prompt(2), prompt(2, seed=1)
    assert given.history is not None
    past = part.prefill(given.history).cache
    first, between, again = (part.prefill(turn, past) for turn in (given.turn, other.turn, given.turn))
    np.testing.assert_array_equal(again.logits, first.logits)
    assert not np.array_equal(between.logits, first.logits)


def test_prompt_or_answer_beyond_the_cache_is_refused() -> None:
    part = engines().predictor
    with pytest.raises(
        BackendError, match=r"does not fit into the predictor's cache; found 940 tokens; expected at most 784"
    ):
        prefill_prompt(part, prompt(3))
    cache = part.prefill(prompt(0).turn).cache
    with pytest.raises(BackendError, match="too many tokens at once; found 65; expected at most 64"):
        part.extend(np.zeros(ANSWER_TOKENS + 1, np.int64), cache)


def test_timesteps_and_guidance_stay_float32_in_half_precision() -> None:
    # In 16 bits 999 is 1000: numbers are embedded in float32.
    given, exact = (torch.tensor([999.0, 979.0, 659.0, 333.0, 19.0]), torch.tensor([15.0])), networks()[1]
    half = cast_for_inference(networks()[1], torch.bfloat16)
    embedded = [weight for name, weight in half.named_parameters() if name.startswith(("time.", "motion."))]
    assert {weight.dtype for weight in embedded} == {torch.float32}
    with torch.no_grad():
        found = Transformer(half, torch.bfloat16).modulations(*given).float()
        expected = Transformer(exact, torch.float32).modulations(*given)
    assert 0 < float(((found - expected).norm(dim=1) / expected.norm(dim=1)).max()) < 1e-2
    # So is the difference of guidance.
    assert unpatchify(torch.zeros(2, 5 * 2 * 3, 64, dtype=torch.bfloat16), exact.size).dtype == torch.float32


def test_steps_that_cannot_be_are_refused() -> None:
    turn, part = Turn(), engines()
    denoising = part.denoiser.start(turn.start, turn.shot, 10.0)
    given = (PLAN.coefficients()[0], float(PLAN.steps[0].timestep))
    with pytest.raises(BackendError, match=r"unsupported rows; found \(0,\)"):
        denoising.step(*given, (0,), turn.noises[0])
    part.denoiser.start(turn.start, turn.shot, 10.0)
    for late in (denoising.latent, lambda: denoising.step(*given, (0, 1), turn.noises[0])):
        with pytest.raises(BackendError, match="continued after the next turn had started"):
            late()
    with pytest.raises(BackendError, match="latent or the shot has the wrong shape"):
        part.denoiser.start(turn.start[:, :3], turn.shot, 10.0)


def test_pixels_that_are_not_finite_are_an_error_and_not_black() -> None:
    part, latent = engines(), noise(*SHAPE)
    with torch.no_grad():
        part.vae.network.conv_out.bias[0] = torch.nan  # type: ignore[attr-defined]
    with pytest.raises(UnusableOutputError, match=r"vae \(float32\): the frames cannot be used; found NaN or infinite"):
        frames(part, latent)


def test_second_chunk_needs_the_first_of_its_own_clip() -> None:
    part, latent = engines().vae, noise(*SHAPE)
    _, caches = part.first(latent[:, :3].copy(), (0, 1, 2), False)
    part.first(latent[:, :3].copy(), (0, 1, 2), False)
    with pytest.raises(BackendError, match="second chunk was requested after another clip had started"):
        part.next(latent[:, 3:].copy(), caches, (0, 1, 2), False)
    with pytest.raises(BackendError, match=r"a latent chunk has the wrong shape; found \(1, 2, 16, 4, 6\)"):
        part.first(latent[:, 3:].copy(), (0, 1, 2), False)


def test_vae_short_of_memory_paints_the_same_from_caches_on_the_host() -> None:
    (torch_device, part), plain = small_vae(free=0), reference()
    shapes = cache_shapes(networks()[3], 4, 6)
    assert [tuple(cache.shape) for cache in torch_device.on_host] == shapes
    for _ in range(3):
        latent = 2 * noise(*SHAPE)
        found, exact = frames(Engines(None, None, part), latent), frames(plain, latent)  # type: ignore[arg-type]
        assert found.std() > 5 and np.abs(found.astype(np.int16) - exact).max() <= 1
        assert (found != exact).mean() < 1e-3
        assert all(bool(cache.any()) for cache in torch_device.on_host)
    assert (torch_device.captured, torch_device.replayed) == (2, 4)


def test_recorded_step_of_the_reference_is_met() -> None:
    folder = open_folder(GOLDEN)
    fixture = folder.sets["dit_step_a"]
    denoiser, encoder = diffusion.networks(folder, fixture)
    network = Transformer(denoiser, torch.float32)
    with torch.no_grad():
        shots = torch.cat([encoder.unconditional()[None], fixture.tensors["aroutput"]])
        assert torch.equal(fixture.tensors["x"][0], fixture.tensors["x"][1])
        row = network.modulations(fixture.tensors["timesteps"][:1], fixture.tensors["flow_idx"][:1])
        v = network.v(fixture.tensors["x"][:1], shots, row)
    assert float((v - fixture.tensors["output"]).abs().max()) <= 1e-5


def test_recorded_clip_of_the_reference_is_met() -> None:
    folder = open_folder(GOLDEN)
    fixture = folder.sets["vae_decode_a"]
    network, found = decoding.decoder(folder, fixture), []
    caches: list[Tensor] | None = None
    with torch.no_grad():
        for start, end in fixture.description["chunks"]:
            kept: list[Tensor] = []
            chunk = fixture.tensors["latent"][0, :, start:end].permute(1, 2, 3, 0).contiguous()
            found.append(decode(network, chunk, caches, lambda cache, kept=kept: kept.append(cache.clone())))
            caches = kept
    recorded = fixture.tensors["output"][0].permute(1, 2, 3, 0)
    assert float((torch.cat(found) - recorded).abs().max()) <= 1e-4


def test_graphs_give_the_same_turns_as_running_plainly() -> None:
    torch_device = TapeDevice()
    part, plain = engines(torch_device), engines()
    for scope in (2.5, 15.0, 2.5):
        turn, given, latent = Turn(scope), prompt(int(scope) % 2, seed=3), noise(*SHAPE)
        np.testing.assert_array_equal(turn.latents(part)[0], turn.latents(plain)[0])
        for found, expected in zip(answers(part, given), answers(plain, given), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(frames(part, latent), frames(plain, latent))
    # A pair, a single row, an extend of three tokens, two chunks.
    assert torch_device.captured == 5
    # The first of each runs plainly.
    assert torch_device.replayed == 3 * (len(PLAN) + 3 + 2) - 5


def test_turn_after_one_with_lost_numbers_is_whole() -> None:
    part, turn, lost = engines(), Turn(), Turn()
    lost.noises = [np.full(SHAPE, np.nan, np.float32) for _ in PLAN]
    assert np.isnan(lost.latents(part)[0]).all()
    np.testing.assert_array_equal(turn.latents(part)[0], turn.latents(engines())[0])


def test_only_a_thread_that_has_run_the_work_captures_it_and_any_replays() -> None:
    torch_device, total = TapeDevice(), torch.zeros(1)
    replays = GraphCache(torch_device)

    def run() -> tuple[int, int]:
        replays.run("work", lambda: total.add_(1.0))
        return torch_device.captured, torch_device.replayed

    with ThreadPoolExecutor(1) as other:
        assert run() == (0, 0)
        assert other.submit(run).result() == (0, 0), "captured in a thread whose libraries were not set up"
        assert other.submit(run).result() == (1, 1)
        assert run() == (1, 2)
    assert total.item() == 4


@pytest.mark.parametrize("rowwise", [FP8, INT8], ids=["fp8", "int8"])
def test_denoising_in_8_bits_stays_near_and_runs_as_a_graph(rowwise: torch.dtype) -> None:
    turn, torch_device = Turn(), TapeDevice()
    exact, found = turn.latents(engines())[0], turn.latents(engines(rowwise=rowwise))[0]
    assert 0 < np.linalg.norm(found - exact) < 0.1 * np.linalg.norm(exact)
    part = engines(torch_device, rowwise=rowwise)
    for _ in range(2):
        np.testing.assert_array_equal(turn.latents(part)[0], found)
    assert torch_device.captured == 2


SLOTS = StateSlots(options=(31, 7, 50, 62, 8), between=((3, 4), (5, 6), (3, 6)))


def chosen(part: Engines, given: Prompt) -> list[int]:
    """The numbers of the options with the largest logits, by extending from one slot to the next."""
    prefill = prefill_prompt(part.predictor, given)
    cache, choices = prefill.cache, [int(prefill.logits[list(SLOTS.options)].argmax())]
    for fixed in SLOTS.between:
        tokens = np.array([SLOTS.options[choices[-1]], *fixed], np.int64)
        logits, cache = part.predictor.extend(tokens, cache)
        choices.append(int(logits[list(SLOTS.options)].argmax()))
    return choices


def test_choices_on_the_device_are_those_of_extending_from_slot_to_slot() -> None:
    torch_device = TapeDevice()
    # Two buckets: 1524 tokens and the state's nine still fit into the first, 1530 do not.
    part, plain, seen = engines(torch_device, window=2000), reference(), set[tuple[int, ...]]()
    for history_turns, words, seed in ((0, 3, 1), (1, 5, 2), (2, 5, 3), (5, 24, 4), (5, 25, 5), (0, 4, 6)):
        given = prompt(history_turns, words, seed)
        first, *others = chosen(plain, given)
        choose = prefill_prompt(part.predictor, given).choose_next
        assert choose is not None
        for _ in range(2):
            np.testing.assert_array_equal(choose(SLOTS, first), others)
        seen.add((first, *others))
    assert len(seen) > 2, "the choices hardly depend on the prompt"
    # The cache grows for 1530 tokens, and the graphs before that are those of the smaller one.
    assert (torch_device.captured, torch_device.replayed) == (3, 9)


def test_choice_among_lost_logits_is_none() -> None:
    part, given = engines(), prompt(1)
    choose = prefill_prompt(part.predictor, given).choose_next
    assert choose is not None and np.isfinite(choose(SLOTS, 0)).all()
    with torch.no_grad():
        part.predictor.network.head.weight[SLOTS.options[2]] = torch.nan  # type: ignore[attr-defined]
    assert np.isnan(choose(SLOTS, 0)).all()


@pytest.mark.parametrize(
    ("seed", "turn", "first", "draws", "count"),
    [(7, 1, 3, 1, 432_000), (2**127 + 3, 2**40, 1, 7, 17_281), (2**128 - 1, 2, 0, 4, 33), (7, 1, 50, 0, 40)],
)
def test_integers_of_pytorch_give_the_bits_of_numpy(seed: int, turn: int, first: int, draws: int, count: int) -> None:
    given = Noise(seed, turn, first, np.linspace(-1.3, 0.9, 7, dtype=np.float32)[:draws], (count,))
    key, table = torch.from_numpy(given.key.view(np.int64)), torch.tensor(load_table())
    found = Philox(TorchDevice()).sum_draws(key, table, first, given.weights.tolist(), count)
    np.testing.assert_array_equal(found.numpy(), given.array())
