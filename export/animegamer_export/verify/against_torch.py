"""Compares a bundle's parts with the networks in torch, in float32, on the weights that the bundle was made from.

Both get the same random inputs. torch runs first, block by block (`parts.streamed.run`), then the part in a session of
bounded memory (`onnx_io.part_session`). A part with rounded or quantised weights is compared a second time, with torch
on weights rounded in the same way: the remaining difference is the part's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from animegamer_export.build.weight_source import TOWER_PARTS, ExportSource, from_checkpoints, from_seed
from animegamer_export.evaluate.metrics import psnr, relative_error
from animegamer_export.evaluate.turns import sample_instructions
from animegamer_export.onnx_io.part_session import PartSession, latent_size
from animegamer_export.parts.denoiser import INPUTS, OUTPUTS, example_step
from animegamer_export.parts.predictor import empty_cache, feeds, output_names
from animegamer_export.parts.streamed.parts import (
    Weights,
    denoiser_parameter,
    predictor_parameter,
    whole_encoder,
    with_weights,
)
from animegamer_export.parts.streamed.run import Log, block_streaming
from animegamer_export.parts.vae import pixels
from animegamer_export.quantize.bundle import part_names
from animegamer_export.quantize.fake_quantize import FakeQuantizedWeights, fake_quantized
from animegamer_export.support.peak_memory import peak_mib
from animegamer_export.towers.image import ImageTower
from animegamer_export.towers.parts import IMAGE, TEXT, Towers
from animegamer_export.towers.text import TextTower
from animegamer_export.verify.figures import ACTIVATION_TOLERANCES, PARTS, Figures, exceeds_tolerance
from animegamer_rt.backends.interface import TokenBatch
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DENOISER, ENCODER, PREDICTOR, VAE, graph_names
from animegamer_rt.errors import BundleError, ConfigError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.denoiser_step import DenoiserStep
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import GameState

SEED = 11
FP32_TOLERANCE = 3e-4
"""Largest relative error of an output on the same weights, from another order of operations. Measured: 7e-6 at pocket's
size and 1.4e-6 in a whole full-size predictor (docs/EXPORT.md); the rest is a margin for more layers."""
TOLERANCES: Mapping[str, float] = {"fp32": FP32_TOLERANCE, "fp16": 1e-2, "bf16": 8e-2, **ACTIVATION_TOLERANCES}
"""Largest relative error by precision, against float32 weights. Rounding changes each weight by 5e-4 (fp16) or 4e-3
(bf16); the largest error measured in fp16 is 1.1e-3, at pocket's size (docs/EXPORT.md). Quantised weights have no
limit."""
ROUNDED_PREFIX = "rounded_"
"""Prefix of errors against torch with the part's rounding; their limit is FP32_TOLERANCE."""
MIN_PSNR_DB = 30.0
MIN_PSNR_SAME_WEIGHTS_DB = 60.0
"""On the same weights: pixels are truncated to whole numbers, so some differ by one."""

Array = npt.NDArray[Any]


def source_from_provenance(bundle: Bundle, checkpoints: Path | None) -> ExportSource:
    """The source named in the bundle's provenance: checkpoints, in that folder, or a seed. Raises ConfigError."""
    made: Mapping[str, Any] = bundle.manifest.provenance.get("made_of", {})
    if "seed" in made:
        return from_seed(made["seed"], made["size"])
    if "release" not in made:
        raise ConfigError(
            "the bundle was not made by animegamer-rt export", where=bundle.folder, do="use --against BUNDLE"
        )
    if checkpoints is None:
        raise ConfigError("no reference to compare with", do="pass --checkpoints DIR or --against BUNDLE")
    height, width = made["picture"]
    return from_checkpoints(checkpoints, made["release"], height, width, made.get("alpha", {}))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A bundle and its source; log: called with progress lines."""

    bundle: Bundle
    source: ExportSource
    log: Log

    def weights(self, part: str, parameter: Callable[[str], tuple[str, object]]) -> dict[str, Weights]:
        """Weights for torch by error prefix: the source's own, and the rounded ones of a rounded part."""
        source, name = self.source_weights(part), part_names(self.bundle, part)[0]
        precision = self.bundle.manifest.parts[name].precision
        twice = part in self.bundle.manifest.provenance.get("quantized", {})
        again = fake_quantized(source, self.bundle.part_path(name), precision, parameter, twice)
        return {"": source} if again is None else {"": source, ROUNDED_PREFIX: again}

    def source_weights(self, part: str) -> Weights:
        """The weights of a part or tower. Raises ConfigError if the source has none."""
        if part in TOWER_PARTS:
            return (self.towers.text if part == TEXT else self.towers.image)[1]
        return self.source.weights[part]

    @property
    def towers(self) -> Towers:
        """The source's towers. Raises ConfigError if it has none."""
        if self.source.towers is None:
            raise ConfigError(
                "the source has no towers to compare with",
                found=self.source.towers_missing,
                do="exclude them with --parts",
            )
        return self.source.towers

    def open(self, part: str) -> PartSession:
        """Opens the part in onnxruntime; call it after torch's network is freed."""
        self.log(f"{part} in onnxruntime, without progress reports")
        return PartSession(self.bundle, part)


@torch.no_grad()
def compare_with_torch(
    bundle: Bundle, source: ExportSource, parts: Sequence[str] = (), log: Log = lambda _: None
) -> dict[str, Figures]:
    """Figures of the named parts, or of all parts of the bundle.

    `peak_mib`: peak memory of the process so far, mapped files included. Raises ConfigError for a missing part.
    """
    comparisons = {PREDICTOR: _predictor, DENOISER: _denoiser, VAE: _vae, ENCODER: _encoder}
    comparisons |= {TEXT: _text_tower, IMAGE: _image_tower}
    figures = {}
    for part in parts or [name for name in comparisons if name in PARTS or name in bundle.manifest.parts]:
        precision, began = bundle.manifest.parts[part_names(bundle, part)[0]].precision, time.perf_counter()
        log(f"{part} in torch")
        found = comparisons[part](_Comparison(bundle, source, log))
        spent = {"seconds": round(time.perf_counter() - began, 1), "peak_mib": peak_mib()}
        figures[part] = {"precision": precision, "against": "torch, fp32", **found, **spent}
    return figures


def failed_figures(figures: Mapping[str, Figures]) -> list[str]:
    """One line for each error above what the part's precision allows."""
    found = []
    for part, figure in figures.items():
        same = {name: value for name, value in figure.items() if name.startswith(ROUNDED_PREFIX)}
        other = {name: value for name, value in figure.items() if name not in same}
        found += exceeds_tolerance({part: other}, TOLERANCES) + exceeds_tolerance(
            {part: {**same, "precision": "fp32"}}, TOLERANCES
        )
        least = MIN_PSNR_SAME_WEIGHTS_DB if figure["precision"] == "fp32" else MIN_PSNR_DB
        for name, at_least in (
            ("frames_psnr_db", least),
            (f"{ROUNDED_PREFIX}frames_psnr_db", MIN_PSNR_SAME_WEIGHTS_DB),
        ):
            if name in figure and not figure[name] >= at_least:
                found.append(f"{part}: {name.replace('_', ' ')} {figure[name]}, required {at_least}")
    return found


def _predictor(compared: _Comparison) -> Figures:
    """One prompt with an earlier turn, then four given strengths.

    The part reads it as in a game, each run with the cache of the run before; torch reads it in one run.
    """
    bundle, source = compared.bundle, compared.source
    prompt_builder, size, random = (
        PromptBuilder.from_bundle(bundle),
        bundle.manifest.geometry,
        np.random.default_rng(SEED),
    )
    (text,) = sample_instructions(bundle.manifest.world, 1, SEED)
    shot = random.standard_normal((size.shot_tokens, size.shot_width)).astype(np.float16)
    prompt = prompt_builder.build(text, [HistoryTurn(text, GameState(1, 2, 3, 4), shot)])
    strengths = list(prompt_builder.strength_ids)
    texts = [np.array([random.choice(strengths), *fixed], np.int64) for fixed in prompt_builder.between_slots]
    runs = [*prompt.runs, *(TokenBatch.text(ids, size.shot_width) for ids in texts)]
    true = {}
    for kind, weights in compared.weights(PREDICTOR, predictor_parameter).items():
        model = block_streaming(lambda: Predictor(source.sizes.predictor), weights, log=compared.log)
        true[kind] = read_in_one(model, runs, len(prompt.runs))
    past, answers, outputs = empty_cache(model), [], output_names(model.size.layers)
    del model
    part = compared.open(PREDICTOR)
    for tokens in runs:
        given = ({name: value.numpy() for name, value in feeds(row, past).items()} for row in tokens.rows())
        read = [part.run(outputs, row) for row in given]
        answers.append((read[0][0], read[-1][1]))
        past = [torch.from_numpy(one) for one in read[-1][2:]]
    turn = len(prompt.runs) - 1
    tried = np.concatenate([logits for _, logits in answers[turn:]])
    figures: Figures = {}
    for kind, (shot, logits) in true.items():
        same = tried[:, strengths].argmax(1) == logits[:, strengths].argmax(1)
        figures |= _errors(f"{kind}shot", answers[turn][0], shot) | _errors(f"{kind}logits", tried, logits)
        figures[f"{kind}strengths_equal_of_4"] = int(same.sum())
    return figures


def read_in_one(model: Predictor, runs: Sequence[TokenBatch], prompts: int) -> tuple[Array, Array]:
    """The shot of the last prompt run, and logits [1 + texts, V] after it and after each text, in one run."""
    ends = np.cumsum([tokens.ids.shape[1] for tokens in runs])
    count, first_shot = int(ends[-1]), 0
    seen, index = torch.zeros(2, count, count, dtype=torch.bool), torch.zeros(2, count, dtype=torch.int64)
    for tokens, end in zip(runs, ends, strict=True):
        new = slice(int(end) - tokens.ids.shape[1], int(end))
        seen[:, new, : new.start], seen[:, new, new] = True, torch.from_numpy(tokens.arrays()["masks"])
        places = np.where(tokens.history_index >= 0, tokens.history_index + first_shot, -1)
        index[:, new] = torch.from_numpy(places)
        first_shot += len(tokens.history_shots)
    ids = torch.from_numpy(np.concatenate([tokens.ids for tokens in runs], axis=1)).expand(2, -1)
    shots = torch.from_numpy(np.concatenate([tokens.history_shots for tokens in runs]))
    hidden = model(ids, index, seen, shots)
    turn, start = runs[prompts - 1], ends[prompts - 1] - runs[prompts - 1].ids.shape[1]
    shot: Tensor = model.output_resampler(hidden[0, turn.readout + start])
    logits: Tensor = model.head(hidden[1, ends[prompts - 1 :] - 1])
    return shot[None].numpy(), logits.numpy()


def _denoiser(compared: _Comparison) -> Figures:
    """One CFG pair: both rows, guidance and solver."""
    sizes, true = compared.source.sizes, {}
    unconditional = whole_encoder(sizes.encoder, compared.source.weights[DENOISER]).unconditional()
    for kind, weights in compared.weights(DENOISER, denoiser_parameter).items():
        denoiser = block_streaming(lambda: Denoiser(sizes.denoiser), weights, "denoiser.", compared.log)
        constant = weights.rounded(unconditional) if isinstance(weights, FakeQuantizedWeights) else unconditional
        step = example_step(denoiser, [0, 1], 0.0, SEED)
        true[kind] = [value.numpy() for value in DenoiserStep(denoiser, constant)(*step)]
    del denoiser
    feeds = {name: value.numpy() for name, value in zip(INPUTS, step, strict=True)}
    tried = compared.open(DENOISER).run(OUTPUTS, feeds)
    figures: Figures = {}
    for kind, (latent, x0, *_) in true.items():
        figures |= _errors(f"{kind}x0", tried[1], x0) | _errors(f"{kind}latent", tried[0], latent)
    return figures


def _vae(compared: _Comparison) -> Figures:
    """The frames of one latent of `latent_size`, both chunks."""
    source, size = compared.source, compared.bundle.manifest.geometry
    picture = latent_size(size.latent_height, size.latent_width)
    shape = (1, size.latent_frames, size.latent_channels, *picture)
    latent = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))
    order, flip, true = torch.arange(3), torch.tensor([False]), {}
    for kind, weights in compared.weights(VAE, as_named).items():
        with torch.device("meta"):
            decoder = VaeDecoder(source.sizes.vae)
        frames = (
            with_weights(decoder, weights).decode(latent.transpose(1, 2) / source.sizes.vae.scale)[0].transpose(0, 1)
        )
        true[kind] = pixels(frames, order, flip).numpy()
        del decoder
    shared = {"channel_order": order.numpy(), "flip": flip.numpy()}
    first_graph, next_graph = graph_names(VAE)
    first = compared.open(first_graph)
    begun = dict(zip(first.outputs, first.run(first.outputs, {"latent": latent[:, :3].numpy(), **shared}), strict=True))
    frames_first = begun.pop("frames")
    rest = compared.open(next_graph).run(("frames",), {"latent": latent[:, 3:].numpy(), **shared, **begun})
    tried = np.concatenate([frames_first, rest[0]])
    figures: Figures = {"picture": "x".join(str(length) for length in tried.shape[1:3])}
    for kind, expected in true.items():
        figures[f"{kind}frames_psnr_db"] = round(psnr(tried, expected), 2)
        figures[f"{kind}frames_max_error"] = int(_largest(tried, expected))
    return figures


def _encoder(compared: _Comparison) -> Figures:
    size, random = compared.source.sizes.encoder, torch.Generator().manual_seed(SEED)
    text = torch.randn(1, size.text_tokens, size.text_width, generator=random)
    image = torch.randn(1, size.image_tokens, size.image_width, generator=random)
    weights = compared.weights(ENCODER, lambda name: (f"encoder.{name}", None))
    true = {kind: whole_encoder(size, each)(text, image) for kind, each in weights.items()}
    return _one_output(compared, ENCODER, "shot", {"text_features": text, "image_features": image}, true)


def _text_tower(compared: _Comparison) -> Figures:
    """The features of one text, half of it padding, which is attended to."""
    size, true = compared.towers.text[0], {}
    ids = torch.randint(1, size.vocabulary, (1, size.tokens), generator=torch.Generator().manual_seed(SEED))
    ids[:, size.tokens // 2 :] = 0
    for kind, weights in compared.weights(TEXT, as_named).items():
        true[kind] = block_streaming(lambda: TextTower(size), weights, log=compared.log)(ids)
    return _one_output(compared, TEXT, "text_features", {"ids": ids}, true)


def _image_tower(compared: _Comparison) -> Figures:
    """The features of one noise picture; the whole tower is in memory (0.3 GB at full size)."""
    size = compared.towers.image[0]
    picture = torch.rand(1, 3, size.side, size.side, generator=torch.Generator().manual_seed(SEED)) * 2 - 1
    weights = compared.weights(IMAGE, as_named)
    true = {kind: with_weights(ImageTower(size), each)(picture) for kind, each in weights.items()}
    return _one_output(compared, IMAGE, "image_features", {"picture": picture}, true)


def _one_output(
    compared: _Comparison, part: str, output: str, inputs: Mapping[str, Tensor], true: Mapping[str, Tensor]
) -> Figures:
    """Errors of a part with one output. true: torch's, by error prefix."""
    (tried,) = compared.open(part).run((output,), {name: value.numpy() for name, value in inputs.items()})
    what, figures = output.rpartition("_")[2], Figures()
    for kind, expected in true.items():
        figures |= _errors(f"{kind}{what}", tried, expected.numpy())
    return figures


def as_named(name: str) -> tuple[str, None]:
    """The parameter for a weight of a graph that uses the network's names."""
    return name, None


def _errors(name: str, tried: Array, true: Array) -> Figures:
    if tried.shape != true.shape:
        raise BundleError(f"{name} differs in shape from the source's", found=tried.shape, expected=true.shape)
    error = relative_error(tried, true)
    return {f"{name}_max_error": float(f"{_largest(tried, true):.3g}"), f"{name}_relative_error": float(f"{error:.3g}")}


def _largest(tried: Array, true: Array) -> float:
    return float(np.abs(tried.astype(np.float64) - true).max())
