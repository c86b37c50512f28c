"""Claims about the pocket bundle's parts, on networks of random weights and a few thousand parameters."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from animegamer_export.build.default_plans import default_plans
from animegamer_export.onnx_io import write as onnx_file
from animegamer_export.pocket import bundle as pocket
from animegamer_export.pocket.tokenizer import train_tokenizer
from animegamer_export.pocket.towers import ImageTower, TextTower
from animegamer_export.pocket.world.captions import parse
from animegamer_export.pocket.world.sampling import sample_game
from animegamer_export.quantize.bundle import quantize_bundle
from animegamer_export.quantize.scheme import scheme
from animegamer_export.verify import command as verify
from animegamer_rt.backends import registry
from animegamer_rt.backends.interface import PartCache
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.denoise_plan import even_plan
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BundleError
from animegamer_rt.events import FrameReady
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

PLANS = {"exact": even_plan(4), "balanced": even_plan(2, pair_every=2)}


def scattered(module: nn.Module) -> nn.Module:
    """Random biases and norms too: at their starting values many mistakes would not show."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return module.eval()


def networks(vocabulary: int) -> pocket.Networks:
    torch.manual_seed(0)
    predictor = PredictorSize(
        hidden=32, layers=1, heads=2, kv_heads=1, mlp=64, vocabulary=vocabulary, shot_width=32, sliding_window=4096
    )
    denoiser = DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=8, latent_width=12)
    made = pocket.Networks(
        predictor=Predictor(predictor),
        denoiser=Denoiser(denoiser),
        encoder=Encoder(EncoderSize(text_width=16, image_width=224, hidden=32)),
        decoder=VaeDecoder(VaeSize(channels=4, multipliers=(1, 1, 2), res_blocks=0, norm_groups=2, scale=1.3)),
        text_tower=TextTower(vocabulary, 16),
        image_tower=ImageTower(),
    )
    for module in (made.predictor, made.denoiser, made.encoder, made.decoder, made.text_tower):
        scattered(module)
    return made


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("tokenizer")
    texts = [text for _ in range(20) for _, text in sample_game(random.Random(3), 5)]
    return folder, train_tokenizer(texts, 300, folder)


@pytest.fixture(scope="module")
def written(tokenizer: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, dict[str, float]]:
    """A bundle, and the largest error of each check that its export made."""
    folder, vocabulary = tokenizer
    errors: dict[str, float] = {}

    def check(folder: Path, cases: list[tuple[str, onnx_file.Case]], tolerance: float) -> dict[str, float]:
        found = onnx_file.check(folder, cases, tolerance)
        errors.update(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        for part in ("predictor", "denoiser", "vae", "encoder"):
            patch.setattr(f"animegamer_export.parts.{part}.check", check)
        where = tmp_path_factory.mktemp("bundles") / "tiny"
        bundle = pocket.write_bundle(where, networks(vocabulary), folder, plans=PLANS, origin="random weights")
    return bundle, errors


@pytest.fixture(scope="module")
def bundle(written: tuple[Bundle, dict[str, float]]) -> Bundle:
    return written[0]


def test_every_part_was_checked_against_its_network(written: tuple[Bundle, dict[str, float]]) -> None:
    _, errors = written
    parts = ("predictor", "denoiser", "denoiser_int8", "vae_first", "vae_next", "encoder", "image_tower")
    assert {key.split(":")[0] for key in errors} == {*parts, "text_tower"}
    assert {"denoiser: pair", "denoiser: conditional", "denoiser: reuse"} <= set(errors)
    assert sum(key.startswith("predictor: 3 earlier turns, extend") for key in errors) == 3


def test_the_bundle_plays_turns_with_history(bundle: Bundle) -> None:
    pipeline = Pipeline.open(bundle, open_engines(bundle, EngineConfig("cpu-fp32", threads=1)), "balanced")
    session = Session.start(bundle, seed=7)
    clips = []
    for text in ("Mirel runs quickly at the beach.", "Mirel waves."):
        events = list(pipeline.run_turn(session, Instruction.parse(text)))
        clips.append(np.stack([event.frame for event in events if isinstance(event, FrameReady)]))
    assert [clip.shape for clip in clips] == [(17, 32, 48, 3)] * 2
    assert session.turns == 2
    assert clips[0].std() > 1 and not np.array_equal(clips[0], clips[1])


def test_in_float32_it_is_the_reference_that_16_bits_are_measured_against(
    tokenizer: tuple[Path, int], tmp_path: Path
) -> None:
    folder, vocabulary = tokenizer
    pocket.write_bundle(tmp_path / "wide", networks(vocabulary), folder, plans=PLANS, precision="fp32")
    made = load(tmp_path / "wide")
    assert {part.precision for part in made.manifest.parts.values()} == {"fp32"}
    assert not any(part.int8_file for part in made.manifest.parts.values())
    asked = {name: scheme("fp16") for name in ("predictor", "denoiser", "vae", "encoder")}
    quantize_bundle(made, tmp_path / "half", asked)
    figures = verify.compare(load(tmp_path / "half"), made, verify.SampleCounts(2, 1))
    assert figures.keys() == asked.keys()
    for part, name in (("predictor", "shot"), ("denoiser", "step"), ("encoder", "shot")):
        assert 1e-5 < figures[part][f"{name}_relative_error"] < 1e-2
    assert 50 < figures["vae"]["frames_psnr_db"] < 100


def test_parts_of_one_network_share_one_file_of_weights(bundle: Bundle) -> None:
    parts = bundle.manifest.parts
    assert parts["vae_first"].data_files == parts["vae_next"].data_files == ("vae.weights",)
    assert parts["predictor"].data_files == ("predictor.weights",)
    assert parts["image_tower"].data_files == ("image_tower.weights",)  # where each square of the picture lies
    weights = sum(
        weight.numel() for weight in networks(bundle.manifest.sizes["predictor"]["vocabulary"]).predictor.parameters()
    )
    assert bundle.path("predictor.weights").stat().st_size < 2.2 * weights


def test_the_casts_of_stored_weights_are_gone_once_loaded(bundle: Bundle, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(bundle.part_path("denoiser")), options, providers=["CPUExecutionProvider"])

    def half_precision(path: Path) -> list[str]:
        graph = onnx.load(path, load_external_data=False).graph
        return [tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT16]

    assert len(half_precision(bundle.part_path("denoiser"))) > 20
    assert half_precision(tmp_path / "loaded.onnx") == []


def test_the_8_bit_denoiser_is_integers_once_loaded_and_has_no_weights_of_its_own(
    bundle: Bundle, tmp_path: Path
) -> None:
    path = bundle.part_path("denoiser", eight_bit=True)
    assert path.name == "denoiser_int8.onnx" and path.name in bundle.manifest.files
    outside = {
        (tensor.dims[0], tuple(pair.value for pair in tensor.external_data if pair.key != "location"))
        for file in (path, bundle.part_path("denoiser"))
        for tensor in onnx.load(file, load_external_data=False).graph.initializer
        if tensor.external_data
    }
    stored = sum(int(pairs[1]) for _, pairs in outside)
    assert stored <= bundle.path("denoiser.weights").stat().st_size < stored + 64 * len(outside)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    graph = onnx.load(tmp_path / "loaded.onnx", load_external_data=False).graph
    codes = [tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT8]
    products = [node for node in graph.node if node.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat")]
    assert len(codes) >= 6 * bundle.manifest.sizes["denoiser"]["layers"]
    assert products and all(node.input[1] in codes for node in products)


def test_the_cpu_plays_8_bits_and_float32_when_asked(bundle: Bundle) -> None:
    loaded: PartCache = {}
    eight, full = (registry.open_engines(bundle, EngineConfig(device), loaded) for device in ("cpu", "cpu-fp32"))
    assert "denoiser in 8 bits" in eight.device and "8 bits" not in full.device
    clips = []
    for engines in (eight, full):
        events = Pipeline.open(bundle, engines).run_turn(
            Session.start(bundle, seed=7), Instruction.parse("Mirel waves.")
        )
        clips.append(np.stack([event.frame for event in events if isinstance(event, FrameReady)]).astype(float))
    difference = np.abs(clips[0] - clips[1])
    assert 0 < difference.max() and difference.mean() < 5


def test_the_manifest_describes_the_world_and_its_sizes(bundle: Bundle) -> None:
    manifest = load(bundle.folder).manifest
    assert (manifest.geometry.height, manifest.geometry.width) == (32, 48)
    assert manifest.sizes["decoder"]["scale"] == 1.3
    assert manifest.parts["denoiser"].inputs["rows"] == {"dtype": "int64", "shape": ["batch"]}
    cached = manifest.parts["predictor"].outputs["next_keys"]["shape"][3]
    assert sorted(cached.split(" + ")) == ["cached_tokens", "tokens"]
    assert bundle.default_plan == "exact", "the others are not measured yet"
    for example in manifest.world.examples:
        scene = parse(example)
        assert scene.motion in manifest.world.motions and scene.place in manifest.world.places


def test_default_plans_are_fifty_guided_steps_and_fewer() -> None:
    plans = default_plans()
    assert {name: len(plan) for name, plan in plans.items()} == {"exact": 50, "balanced": 18, "fast": 10}
    unguided = [step for step in plans["exact"] if step.branch == "conditional"]
    assert len(unguided) == 2 and all(step.guidance - 1 < 1e-5 for step in unguided)


def test_figures_are_renewed_without_a_new_export(bundle: Bundle) -> None:
    before = load(bundle.folder).manifest
    after = pocket.update_bundle(bundle.folder, {"vae": 25.0})
    assert after.manifest.files == before.files
    assert load(bundle.folder).manifest.quality == {"vae": 25.0}
    pocket.update_bundle(bundle.folder, {})
    assert load(bundle.folder).manifest == before


def test_a_bundle_too_large_to_ship_is_refused(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocket, "MAX_BYTES", 1000)
    with pytest.raises(BundleError, match="too large to ship"):
        pocket.update_bundle(bundle.folder, {})
