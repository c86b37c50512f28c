"""Our networks, schedule and tokenizer are the libraries' own with the same weights, until two weights are swapped.

The towers' oracles are in test_towers.py. Imports of transformers and diffusers take seconds, so all are in one module.
"""

from __future__ import annotations

import io
import json
import math
import random
import re
import unicodedata
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import diffusers
import numpy as np
import sentencepiece
import torch
from counted_weights import scattered
from torch import Tensor, nn
from transformers import LlamaTokenizer, MistralConfig, MistralForCausalLM

import fakes
from animegamer_rt.bundle.manifest import Compatibility
from animegamer_rt.bundle.noise_schedule import even_timesteps, full_signal_levels, signal_levels, solver_coefficients
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize
from animegamer_rt.stages.prompt import PromptBuilder

ROUNDING = 1e-6
"""The largest difference that the order of float32 sums makes at these sizes."""


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


def library_names(module: nn.Module, table: Mapping[str, str]) -> dict[str, Tensor]:
    """The module's weights under the names that the table's patterns make, one pattern after the other."""
    found = {}
    for name, value in module.state_dict().items():
        for pattern, replacement in table.items():
            name = re.sub(pattern, replacement, name)
        found[name] = value.clone()
    return found


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def largest(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max())


MISTRAL = {
    r"^blocks\.": "model.layers.",
    r"attention_norm": "input_layernorm",
    r"mlp_norm": "post_attention_layernorm",
    r"attention\.([qkvo])[a-z]+": r"self_attn.\1_proj",
    r"\.(gate|up|down)\.": r".mlp.\1_proj.",
    r"^embedding": "model.embed_tokens",
    r"^norm": "model.norm",
    r"^head": "lm_head",
}


@torch.no_grad()
def test_predictor_is_the_mistral_of_transformers() -> None:
    size = PredictorSize(32, 2, 4, 2, 48, 60, shot_width=8, sliding_window=12)
    ours = scattered(Predictor(size))
    ours.input_resampler = ours.output_resampler = nn.Identity()  # what is read and injected is then hidden states
    config = MistralConfig(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, sliding_window=12, attn_implementation="sdpa",
    )  # fmt: skip
    theirs = MistralForCausalLM(config).eval()
    theirs.load_state_dict(library_names(ours, MISTRAL))
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
        # As it is played: the history first, then the turn over its keys and values, in two rows with different masks.
        nothing, masks = torch.zeros(2, 1, 2, 0, 8), torch.stack([opened, causal])
        history = masks[1:, :before, :before]
        _, _, *past = ours.answer(ids[:, :before], index[:, :before], history, shots, first, nothing, nothing)
        rows, turn = index[:, before:].expand(2, -1), masks[:, before:, before:]
        shot, logits, _, _ = ours.answer(ids[:, before:], rows, turn, shots, queries - before, *past)
        embeddings = theirs.model.embed_tokens(ids).clone()
        embeddings[0, 3:7] = shots
        read = theirs.model(inputs_embeds=embeddings, attention_mask=windowed[None, None]).last_hidden_state
        written = theirs(inputs_embeds=embeddings).logits[:, -1]
        return max(largest(shot, read[:, queries]), largest(logits, written))

    hold(error, ours)


def test_tokens_are_those_of_llamas_tokenizer_in_every_script(tmp_path: Path) -> None:
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


COGVIDEOX = {
    r"^time\.fc_in": "time_embedding.linear_1",
    r"^time\.fc_out": "time_embedding.linear_2",
    r"^patches": "patch_embed.proj",
    r"^positions": "patch_embed.pos_embedding",
    r"^blocks\.": "transformer_blocks.",
    r"\.attention_norm": ".norm1.norm",
    r"\.mlp_norm": ".norm2.norm",
    r"\.attention\.([qk])[a-z]+_norm": r".attn1.norm_\1",
    r"\.attention\.output": ".attn1.to_out.0",
    r"\.mlp_in": ".ff.net.0.proj",
    r"\.mlp_out": ".ff.net.2",
    r"^final_norm": "norm_final",
    r"^head\.norm": "norm_out.norm",
    r"^head\.modulation": "norm_out.linear",
    r"^head\.output": "proj_out",
}
OF_NORM = {"norm1": (0, 1, 2, 6, 7, 8), "norm2": (3, 4, 5, 9, 10, 11)}
"""The modulations of each norm of a block, in the library's order, by their places in ours."""


def cogvideox_weights(ours: Denoiser) -> dict[str, Tensor]:
    found = {}
    for name, value in library_names(ours, COGVIDEOX).items():
        block, _, kind = name.rpartition(".")
        if name.endswith((".qkv.weight", ".qkv.bias")):
            for which, part in zip("qkv", value.chunk(3), strict=True):
                found[f"{block.removesuffix('.attention.qkv')}.attn1.to_{which}.{kind}"] = part
        elif name.startswith("transformer_blocks.") and ".modulation." in name:
            chunks = value.chunk(12)
            for norm, order in OF_NORM.items():
                found[f"{block.removesuffix('.modulation')}.{norm}.linear.{kind}"] = torch.cat(
                    [chunks[k] for k in order]
                )
        elif not name.startswith("motion."):
            found[name] = value
    return found


@torch.no_grad()
def test_denoiser_without_motion_is_the_transformer_of_diffusers() -> None:
    size = DenoiserSize(64, 2, 2, 24, 4, 6, shot_tokens=10)
    ours = scattered(Denoiser(size))
    for weight in ours.motion.fc_out.parameters():
        weight.zero_()
    theirs = diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=32, num_layers=2, time_embed_dim=24, text_embed_dim=64,
        sample_width=6, sample_height=4, sample_frames=17, max_text_seq_length=10,
    ).eval()  # fmt: skip
    theirs.norm_out.norm.eps = 1e-6  # the published network's; the library's has 1e-5
    theirs.patch_embed.text_proj = nn.Identity()  # our shots have the network's width
    given = cogvideox_weights(ours)
    torch.testing.assert_close(
        given.pop("patch_embed.pos_embedding")[None], theirs.patch_embed.pos_embedding[:, 10:].float()
    )
    theirs.load_state_dict(given)
    latent, shot, timestep = normal(2, 5, 16, 4, 6), normal(2, 10, 64, seed=1), torch.tensor([19.0, 999.0])

    def error() -> float:
        return largest(ours(latent, timestep, torch.tensor([0.5, 40.0]), shot), theirs(latent, shot, timestep).sample)

    hold(error, ours)


COGVIDEOX_VAE = {
    r"^middle\.": "mid_block.resnets.",
    r"^stages\.(\d+)\.blocks": r"up_blocks.\1.resnets",
    r"^stages\.(\d+)\.upsample": r"up_blocks.\1.upsamplers.0",
    r"\.conv_in\.": ".conv1.conv.",
    r"\.conv_out\.": ".conv2.conv.",
    r"^(conv_in|conv_out)": r"\1.conv",
    r"\.norm_in\.": ".norm1.",
    r"\.norm_out\.": ".norm2.",
    r"shortcut": "conv_shortcut",
    r"norm\.(weight|bias)$": r"norm_layer.\1",
    r"scale\.(weight|bias)$": r"conv_y.conv.\1",
    r"shift\.(weight|bias)$": r"conv_b.conv.\1",
}


@torch.no_grad()
def test_vae_is_the_decoder_of_diffusers() -> None:
    size = VaeSize(4, (1, 1, 2, 2), 1, 4, 2)
    ours = scattered(VaeDecoder(size))
    theirs = diffusers.AutoencoderKLCogVideoX(
        block_out_channels=(4, 4, 8, 8), down_block_types=("CogVideoXDownBlock3D",) * 4,
        up_block_types=("CogVideoXUpBlock3D",) * 4, layers_per_block=1, norm_num_groups=2, latent_channels=4,
    ).eval()  # fmt: skip
    given = library_names(ours, COGVIDEOX_VAE)
    given = {name: value.squeeze(2) if "upsamplers.0.conv.weight" in name else value for name, value in given.items()}
    theirs.decoder.load_state_dict(given)
    latent = normal(1, 4, 5, 2, 3)

    def error() -> float:
        return largest(ours.decode(latent), theirs.decode(latent).sample)

    hold(error, ours)


def test_schedule_is_the_sde_solver_of_diffusers() -> None:
    theirs = diffusers.CogVideoXDPMScheduler(
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
