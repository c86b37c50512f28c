"""Our networks, schedule and tokenizer are the libraries' own with the same weights, until two weights are swapped.

The towers' oracles are in test_towers.py. Tests import transformers and diffusers, which takes seconds: every process
of the tests reads all test files.
"""

from __future__ import annotations

import io
import json
import math
import random
import shutil
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import sentencepiece
import torch
from counted_weights import scattered
from tiny_release import PICTURE, write_diffusers_vae, write_release
from torch import Tensor, nn

import fakes
from animegamer_export.build.weight_source import from_checkpoints
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Compatibility
from animegamer_rt.bundle.noise_schedule import even_timesteps, full_signal_levels, signal_levels, solver_coefficients
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize
from animegamer_rt.stages.prompt import PromptBuilder

ROUNDING = 1e-6
"""The largest difference that the order of float32 sums makes at these sizes."""


@pytest.fixture(scope="module")
def library_networks() -> ModuleType:
    from benchmarks.peers import library_networks

    return library_networks


def hold(error: Callable[[], float], ours: nn.Module) -> None:
    """Asserts that only rounding differs, and much more where two of our weights of one shape are swapped.

    A dozen pairs from all over the network are swapped, one at a time.
    """
    assert error() <= ROUNDING
    weights = sorted(ours.named_parameters(), key=lambda named: (tuple(named[1].shape), named[0]))
    pairs = [(one, other) for one, other in pairwise(weights) if one[1].shape == other[1].shape]
    for (one, first), (other, second) in pairs[:: max(1, len(pairs) // 12)]:
        first.data, second.data = second.data, first.data
        assert error() > 100 * ROUNDING, f"{one} and {other} were swapped unseen"
        first.data, second.data = second.data, first.data
    assert error() <= ROUNDING


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def largest(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max())


@torch.no_grad()
def test_predictor_is_the_mistral_of_transformers(library_networks: ModuleType) -> None:
    size = PredictorSize(32, 2, 4, 2, 48, 60, shot_width=8, sliding_window=12)
    ours = scattered(Predictor(size))
    ours.input_resampler = ours.output_resampler = nn.Identity()  # what is read and injected is then hidden states
    theirs = library_networks.mistral(ours)
    before, tokens = 9, 30
    ids = torch.randint(60, (1, tokens), generator=torch.Generator().manual_seed(1))
    index, shots = torch.full((1, tokens), -1), normal(4, 32)
    index[0, 3:7] = torch.arange(4)
    first, queries = torch.tensor([0]), torch.arange(14, 20)
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    opened = causal.clone()
    opened[14:20, 14:20] = True
    # The library takes a mask of four axes as it is, without its window.
    windowed = opened & (torch.arange(tokens)[:, None] - torch.arange(tokens) < 12)

    def error() -> float:
        # As it is played: the history first, then the turn over its keys and values, a row for each mask.
        nothing, history = [torch.zeros(1, 2, 0, 8)] * 4, causal[None, :before, :before]
        _, _, *past = ours.answer(ids[:, :before], index[:, :before], history, shots, first, *nothing)
        opened_row, causal_row = (
            ours.answer(
                ids[:, before:], index[:, before:], mask[None, before:, before:], shots, queries - before, *past
            )
            for mask in (opened, causal)
        )
        shot, logits = opened_row[0], causal_row[1]
        embeddings = theirs.model.embed_tokens(ids).clone()
        embeddings[0, 3:7] = shots
        read = theirs.model(inputs_embeds=embeddings, attention_mask=windowed[None, None]).last_hidden_state
        written = theirs(inputs_embeds=embeddings).logits[:, -1]
        return max(largest(shot, read[:, queries]), largest(logits, written))

    hold(error, ours)


def test_tokens_are_those_of_llamas_tokenizer_in_every_script(tmp_path: Path) -> None:
    from transformers import LlamaTokenizer

    draw, scripts = random.Random(5), every_script()
    common = [script[:6] for script in scripts]
    sentences = [sentence(draw, letters) for letters in (common, scripts) for _ in range(5000)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences[:3000]), model_writer=model, model_type="bpe", vocab_size=4000,
        byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True,
        remove_extra_whitespaces=False, normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    (tmp_path / "tokenizer.model").write_bytes(model.getvalue())
    (tmp_path / "added_tokens.json").write_text(json.dumps(fakes.added_tokens(4000)))
    ours = PromptBuilder(tmp_path / "tokenizer.model", tmp_path / "added_tokens.json", Compatibility(), 8, 4096)
    theirs = LlamaTokenizer.from_pretrained(tmp_path, legacy=False)
    theirs.add_tokens(["<TURN>"], special_tokens=True)
    found = [ours.encode_text(text) for text in sentences]
    expected = [
        ids[1:] for ids in theirs(["<TURN>" + text for text in sentences], add_special_tokens=False)["input_ids"]
    ]
    assert [text for text, one, other in zip(sentences, found, expected, strict=True) if one != other] == []
    assert 1000 < len({token for ids in found for token in ids}), "the sentences use few of the pieces"


def every_script() -> list[str]:
    """The letters, marks and digits of each script, by the first word of their Unicode names."""
    scripts: dict[str, str] = {}
    for number in range(0x20000):
        name = unicodedata.name(chr(number), "")
        if unicodedata.category(chr(number))[0] in "LMN":
            script = name.partition(" ")[0]
            scripts[script] = scripts.get(script, "") + chr(number)
    return list(scripts.values())


def sentence(draw: random.Random, scripts: list[str]) -> str:
    """One to eight words, mostly of one script, with signs and uneven spaces."""
    own, ends = draw.choice(scripts), [" ", " ", ", ", "  ", "; ", "-", "\n", ".", "\U0001f38f"]
    letters = [draw.choice([own, own, own, scripts[0]]) for _ in range(draw.randint(1, 8))]
    return "".join("".join(draw.choices(some, k=draw.randint(1, 8))) + draw.choice(ends) for some in letters)


@torch.no_grad()
def test_denoiser_without_motion_is_the_transformer_of_diffusers(library_networks: ModuleType) -> None:
    size = DenoiserSize(64, 2, 2, 24, 4, 6, shot_tokens=10)
    ours = scattered(Denoiser(size))
    for weight in ours.motion.fc_out.parameters():
        weight.zero_()
    theirs = library_networks.transformer(ours)
    # The table that the library makes itself; in its network stands ours.
    table = theirs.patch_embed._get_positional_embeddings(size.latent_height, size.latent_width, 17)
    torch.testing.assert_close(ours.positions[None], table[:, size.shot_tokens :].float())
    latent, shot, timestep = normal(2, 5, 16, 4, 6), normal(2, 10, 64, seed=1), torch.tensor([19.0, 999.0])

    def error() -> float:
        return largest(ours(latent, timestep, torch.tensor([0.5, 40.0]), shot), theirs(latent, shot, timestep).sample)

    hold(error, ours)


@torch.no_grad()
def test_vae_is_the_decoder_of_diffusers(library_networks: ModuleType) -> None:
    size = VaeSize(4, (1, 1, 2, 2), 1, 4, 2)
    ours = scattered(VaeDecoder(size))
    theirs = library_networks.vae(ours)
    latent = normal(1, 4, 5, 2, 3)

    def error() -> float:
        return largest(ours.decode(latent), theirs.decode(latent).sample)

    hold(error, ours)


def test_schedule_is_the_sde_solver_of_diffusers() -> None:
    from diffusers import CogVideoXDPMScheduler

    theirs = CogVideoXDPMScheduler(
        prediction_type="sample", rescale_betas_zero_snr=True, timestep_spacing="trailing", snr_shift_scale=3.0
    )
    theirs.set_timesteps(50)
    timesteps, levels = even_timesteps(50), theirs.alphas_cumprod.sqrt().numpy()
    assert theirs.timesteps.tolist() == list(timesteps)
    np.testing.assert_allclose(full_signal_levels(), levels, atol=1e-12)
    # The published sampler rescales the levels of its own timesteps, diffusers those of all (MODEL.md section 5).
    theirs.alphas_cumprod[list(timesteps)] = torch.from_numpy(signal_levels(timesteps)) ** 2
    ours = expected = normal(1, 4).double()
    x0_before, drawn, drawn_there = None, *(torch.Generator().manual_seed(3) for _ in range(2))
    for k, step in enumerate(solver_coefficients(timesteps, stochastic=True)):
        assert np.abs(levels - step.signal).min() < 1e-12 and math.isclose(step.signal**2 + step.sigma**2, 1)
        x0, before = torch.sin(ours + k), timesteps[k - 1] if k else None
        # diffusers draws twice and uses the second, but for the first step and the last.
        noise = [torch.randn(1, 4, generator=drawn, dtype=torch.float64) for _ in range(1 if k in (0, 49) else 2)][-1]
        expected, _ = theirs.step(x0, x0_before, timesteps[k], before, expected, generator=drawn_there)
        ours = step.c_latent * ours + step.c_x0 * x0 + step.c_noise * noise
        ours += 0 if x0_before is None else step.c_x0_prev * x0_before
        x0_before = x0
        assert largest(ours, expected) < 1e-12, f"step {k}"


def test_turns_of_the_libraries_networks_are_ours(
    whole: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.peers import __main__ as peers

    told = [
        "--bundle",
        str(whole.folder),
        "--plan",
        "fast",
        "--turns",
        "1",
        "--threads",
        "1",
        "--results",
        str(tmp_path),
    ]
    assert peers.main(told) == 0, capsys.readouterr().err
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text())
    theirs = record["engines"][-1]
    assert (theirs["name"], theirs["n"], len(theirs["samples"])) == ("transformers + diffusers", 1, 1)
    assert theirs["same_states"] and theirs["frame_difference"] <= 1 and theirs["shot_difference"] < 1e-4
    assert {"transformers", "diffusers", "onnxruntime", "torch"} <= set(record["software"])
    assert f"{theirs['seconds_per_turn_p50']:.3f} s" in capsys.readouterr().out


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A tiny release without a vae."""
    folder = write_release(tmp_path)
    shutil.rmtree(folder / "CogVideoX-2b-sat")
    return folder


@torch.no_grad()
def test_the_vae_of_a_diffusers_folder_decodes_as_diffusers_does(checkpoints: Path) -> None:
    from diffusers import AutoencoderKLCogVideoX

    torch.manual_seed(11)
    network = AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * 3,
        up_block_types=("CogVideoXUpBlock3D",) * 3,
        block_out_channels=(32, 32, 64),
        layers_per_block=1,
        norm_num_groups=16,
    ).eval()
    for value in network.parameters():
        value.add_(0.05 * torch.randn_like(value))
    network.save_pretrained(checkpoints / "CogVideoX-2b" / "vae")

    source = from_checkpoints(checkpoints, "Qiqi", *PICTURE)
    weights, size = source.weights["vae"], source.sizes.vae
    latent = torch.randn(1, 16, 5, 8, 12) / size.scale
    ours = with_weights(VaeDecoder(size), weights).decode(latent)
    theirs = network.decode(latent).sample
    assert ours.shape == theirs.shape == (1, 3, 17, *PICTURE) and theirs.std() > 0.01
    assert (ours - theirs).abs().max() <= 1e-5
    used = {one.weight for one in weights.sources.values()}
    assert used | set(weights.unused) == set(network.state_dict())
    assert all(key.startswith("encoder.") for key in weights.unused)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scaling_factor": 0.7}, r"not the vae that the release was trained with.*scaling_factor \(found 0.7"),
        ({"shift_factor": 0.1}, r"shift_factor \(found 0.1, expected None\)"),
        ({"_class_name": "AutoencoderKL"}, "not a config of CogVideoX's vae"),
        ({"block_out_channels": None}, "sizes missing or not positive"),
        ({"up_block_types": ["UpBlock"] * 3}, r"up_block_types \(found \['UpBlock'"),
        ({"pad_mode": "replicate"}, r"pad_mode \(found replicate, expected None\)"),
        ({"block_out_channels": [32, 32, 32]}, "does not match the vae checkpoint"),
    ],
)
def test_another_vae_is_refused(checkpoints: Path, changed: dict[str, object], said: str) -> None:
    path = checkpoints / "CogVideoX-2b" / "vae" / "config.json"
    write_diffusers_vae(path.parent)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changed}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"(?s){said}"):
        from_checkpoints(checkpoints, "Qiqi", *PICTURE)
