"""Compares a bundle's parts with the networks in torch, on the weights that the bundle was made from, float32.

Each part is given the same inputs on both sides, drawn from a fixed seed. A large network is run a block at a time
(`large.run`) beside one ONNX file at a time, so that memory holds neither whole. It does not know precisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch

from animegamer_export.command.source import Source, from_checkpoints, from_seed
from animegamer_export.denoiser import INPUTS, OUTPUTS, example_step
from animegamer_export.large.parts import whole_encoder
from animegamer_export.large.run import streamed
from animegamer_export.predictor import OUTPUTS as PREDICTOR_OUTPUTS
from animegamer_export.predictor import feeds, no_past
from animegamer_export.quantize.blocks import relative_error
from animegamer_export.quantize.bundle import part_names
from animegamer_export.quantize.calibrate import plain_options
from animegamer_export.quantize.turns import instructions
from animegamer_export.vae import pixels
from animegamer_export.verify import Figures, psnr
from animegamer_rt.bundle import Bundle
from animegamer_rt.errors import BundleError, ConfigError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.step import DenoiserStep
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.prompt import PastTurn, Prompter
from animegamer_rt.readouts import Tokens
from animegamer_rt.state import GameState

SEED = 11
ALLOWED: Mapping[str, float] = {"fp32": 1e-3, "fp16": 2e-2, "bf16": 1e-1}
"""Largest relative error of an output by how weights are stored; of a quantised part the figures are only told. fp32:
another order of operations over all layers. 16 bits: the rounding of weights, 5e-4 and 4e-3 each, over all layers."""
PSNR_AT_LEAST_DB = 30.0

Array = npt.NDArray[Any]


def source_of(bundle: Bundle, checkpoints: Path | None) -> Source:
    """What the bundle says it was made of: the checkpoints in that folder, or its seed. Raises ConfigError."""
    made: Mapping[str, Any] = bundle.manifest.provenance.get("made_of", {})
    if "seed" in made:
        return from_seed(made["seed"], made["size"])
    if "release" not in made:
        raise ConfigError(
            "the bundle was not made by animegamer-rt export", where=bundle.folder, do="compare it by --against BUNDLE"
        )
    if checkpoints is None:
        raise ConfigError("nothing to compare with", do="give --checkpoints DIR, or --against BUNDLE")
    return from_checkpoints(checkpoints, made["release"], *made["picture"])


@torch.no_grad()
def compare_with_torch(bundle: Bundle, source: Source, parts: Sequence[str] = ()) -> dict[str, Figures]:
    """Figures of each of the `parts` (or of all that the bundle has of predictor, denoiser, vae and encoder).

    Raises ConfigError for a part that the bundle has not.
    """
    rooms = {"predictor": _predictor, "denoiser": _denoiser, "vae": _vae, "encoder": _encoder}
    figures = {}
    for part in parts or [name for name in rooms if name != "encoder" or name in bundle.manifest.parts]:
        precision = bundle.manifest.parts[part_names(bundle, part)[0]].precision
        figures[part] = {"precision": precision, "against": "torch, fp32", **rooms[part](bundle, source)}
    return figures


def wrong(figures: Mapping[str, Figures]) -> list[str]:
    """What is further off than storing the weights so can explain."""
    found = []
    for part, figure in figures.items():
        allowed = ALLOWED.get(figure["precision"])
        for name, value in figure.items():
            if allowed is not None and name.endswith("relative_error") and not value <= allowed:
                found.append(f"{part}: {name.replace('_', ' ')} {value}, not {allowed} at most")
            if allowed is not None and name.endswith("psnr_db") and not value >= PSNR_AT_LEAST_DB:
                found.append(f"{part}: {name.replace('_', ' ')} {value}, not {PSNR_AT_LEAST_DB} at least")
    return found


def _predictor(bundle: Bundle, source: Source) -> Figures:
    """One prompt with an earlier turn; then the four strengths, both sides being fed the ones that torch chose."""
    prompter, size = Prompter.from_bundle(bundle), bundle.manifest.geometry
    (text,) = instructions(bundle.manifest.world, 1, SEED)
    shot = np.random.default_rng(SEED).standard_normal((size.shot_tokens, size.shot_width)).astype(np.float16)
    prompt = prompter.write(text, [PastTurn(text, GameState(1, 2, 3, 4), shot)])
    model = streamed(lambda: Predictor(source.sizes.predictor), source.weights["predictor"])
    part, caches = _Opened(bundle, "predictor"), [no_past(model)] * 2

    def both(tokens: Tokens) -> list[list[Array]]:
        """Outputs of the part and of torch, each over its own cache."""
        given = {name: value.numpy() for name, value in feeds(tokens, caches[0]).items()}
        true = [value.numpy() for value in model.answer(**feeds(tokens, caches[1]))]
        answers = [part.run(PREDICTOR_OUTPUTS, given), true]
        caches[:] = [(torch.from_numpy(keys), torch.from_numpy(values)) for _, _, keys, values in answers]
        return answers

    for tokens in prompt.runs:
        tried, true = both(tokens)
    figures, strengths = _errors("shot", tried[0], true[0]), list(prompter.strength_ids)
    logits = [(tried[1], true[1])]
    for fixed in prompter.between_slots:
        chosen = np.array([strengths[int(np.argmax(logits[-1][1][0, strengths]))], *fixed], np.int64)
        tried, true = both(Tokens.text(chosen, size.shot_width))
        logits.append((tried[1], true[1]))
    pairs = [(np.argmax(a[0, strengths]), np.argmax(b[0, strengths])) for a, b in logits]
    figures |= _errors("logits", np.stack([a for a, _ in logits]), np.stack([b for _, b in logits]))
    return figures | {"strengths_equal_of_4": sum(bool(a == b) for a, b in pairs)}


def _denoiser(bundle: Bundle, source: Source) -> Figures:
    """One step of a pair: the network twice, guidance and solver."""
    denoiser = streamed(lambda: Denoiser(source.sizes.denoiser), source.weights["denoiser"], "denoiser.")
    unconditional = whole_encoder(source.sizes.encoder, source.weights["denoiser"]).unconditional()
    step = example_step(denoiser, [0, 1], 0.0, SEED)
    true = [value.numpy() for value in DenoiserStep(denoiser, unconditional)(*step)]
    feeds = {name: value.numpy() for name, value in zip(INPUTS, step, strict=True)}
    tried = _Opened(bundle, "denoiser").run(OUTPUTS, feeds)
    return _errors("x0", tried[1], true[1]) | _errors("latent", tried[0], true[0])


def _vae(bundle: Bundle, source: Source) -> Figures:
    """The frames of one latent, both chunks."""
    with torch.device("meta"):
        decoder = VaeDecoder(source.sizes.vae)
    weights = {name: source.weights["vae"].merged(name, torch.float32) for name in decoder.state_dict()}
    decoder.load_state_dict(weights, assign=True)
    decoder.eval()
    size = bundle.manifest.geometry
    shape = (1, size.latent_frames, size.latent_channels, size.latent_height, size.latent_width)
    latent = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))
    order, flip = torch.arange(3), torch.tensor([False])
    frames = decoder.decode(latent.transpose(1, 2) / source.sizes.vae.scale)[0].transpose(0, 1)
    true = pixels(frames, order, flip).numpy()
    shared = {"channel_order": order.numpy(), "flip": flip.numpy()}
    first = _Opened(bundle, "vae_first")
    begun = dict(zip(first.outputs, first.run(first.outputs, {"latent": latent[:, :3].numpy(), **shared}), strict=True))
    frames_first = begun.pop("frames")
    rest = _Opened(bundle, "vae_next").run(("frames",), {"latent": latent[:, 3:].numpy(), **shared, **begun})
    tried = np.concatenate([frames_first, rest[0]])
    return {"frames_psnr_db": round(psnr(tried, true), 2), "frames_max_error": int(_largest(tried, true))}


def _encoder(bundle: Bundle, source: Source) -> Figures:
    size, random = source.sizes.encoder, torch.Generator().manual_seed(SEED)
    text = torch.randn(1, size.text_tokens, size.text_width, generator=random)
    image = torch.randn(1, size.image_tokens, size.image_width, generator=random)
    true = whole_encoder(size, source.weights["encoder"])(text, image).numpy()
    feeds = {"text_features": text.numpy(), "image_features": image.numpy()}
    return _errors("shot", _Opened(bundle, "encoder").run(("shot",), feeds)[0], true)


class _Opened:
    """A part in a session that leaves weights as they are stored: folding their Casts would hold each twice."""

    def __init__(self, bundle: Bundle, part: str) -> None:
        options = plain_options()
        options.add_session_config_entry("session.disable_prepacking", "1")
        self.session = onnxruntime.InferenceSession(
            str(bundle.part_path(part)),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["ConstantFolding"],
        )
        self.outputs = [value.name for value in self.session.get_outputs()]

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        found: list[Array] = self.session.run(list(outputs), dict(feeds))
        return found


def _errors(name: str, tried: Array, true: Array) -> Figures:
    if tried.shape != true.shape:
        raise BundleError(f"{name} is not of the source's shape", found=tried.shape, expected=true.shape)
    error = relative_error(tried, true)
    return {f"{name}_max_error": float(f"{_largest(tried, true):.3g}"), f"{name}_relative_error": float(f"{error:.3g}")}


def _largest(tried: Array, true: Array) -> float:
    return float(np.abs(tried.astype(np.float64) - true).max())
