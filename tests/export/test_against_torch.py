"""Parts compared with the networks in torch: equal where they should be, named where they are not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from counted_weights import CountedWeights, scattered
from project import run_command
from torch import Tensor
from tower_files import write_open_clip, write_t5
from watching import Watching

from animegamer_export.build.sizes import TINY
from animegamer_export.build.steps import export_steps, run_step
from animegamer_export.build.weight_source import TOWER_PARTS, ExportSource, from_seed
from animegamer_export.parts.streamed.parts import encoder_part
from animegamer_export.parts.streamed.run import block_streaming
from animegamer_export.parts.streamed.write import write_streamed
from animegamer_export.towers.parts import open_towers
from animegamer_export.verify.against_torch import (
    FP32_TOLERANCE,
    TOLERANCES,
    compare_with_torch,
    failed_figures,
    source_from_provenance,
)
from animegamer_export.verify.command import DIFFERS, add_command
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import Manifest
from animegamer_rt.bundle.search import find
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import ConfigError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder


def exported(folder: Path, source: ExportSource, precisions: dict[str, str], of: Manifest, **changes: Any) -> Bundle:
    """A bundle of these parts alone; the rest of its manifest is another's, but for the changes."""
    made = [run_step(step, folder, Watching()) for step in export_steps(source, precisions)]
    parts = {name: part for one in made for name, part in one.parts.items()}
    return Bundle(folder, replace(of, parts=parts, **changes))


def test_exported_parts_are_what_torch_computes(whole: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(add_command, [str(whole.folder), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    four = ("predictor", "denoiser", "vae", "encoder")
    assert set(parts) == {part for part in (*four, *TOWER_PARTS) if part in whole.manifest.parts or part in four}
    assert parts["predictor"]["strengths_equal_of_4"] == 4
    # Rounding weights to 16 bits shows; beside the same rounded weights nothing does.
    figures = [(name, value) for part in four for name, value in parts[part].items() if name.endswith("ive_error")]
    errors = [value for name, value in figures if not name.startswith("rounded")]
    assert len(errors) == 5 and all(1e-5 < error < TOLERANCES["fp16"] for error in errors)
    again = [value for name, value in figures if name.startswith("rounded")]
    assert len(again) == 5 and max(again) < FP32_TOLERANCE / 10
    assert parts["vae"]["frames_psnr_db"] > 50 and parts["vae"]["frames_max_error"] <= 2
    assert parts["vae"]["rounded_frames_psnr_db"] > 80 and parts["vae"]["rounded_frames_max_error"] <= 1


@pytest.mark.parametrize(
    ("part", "weight"),
    [
        ("denoiser", "denoiser.blocks.1.attention.output.weight"),
        ("predictor", "blocks.0.attention.key.weight"),
        ("vae", "conv_in.weight"),
        ("encoder", "encoder.text_projection.0.weight"),
    ],
)
def test_one_weight_a_fifth_too_large_is_caught(whole: Bundle, source: ExportSource, part: str, weight: str) -> None:
    class Larger:
        """The source's weights, but for the one."""

        def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
            made = source.weights[part].merged(parameter, dtype)
            return made * 1.2 if parameter == weight else made

    assert weight in source.shapes(part)
    other = replace(source, weights={**source.weights, part: Larger()})
    lines = failed_figures(compare_with_torch(whole, other, [part]))
    assert any("rounded" in line for line in lines), lines


def test_a_quantised_part_is_also_held_to_torch_on_the_same_rounded_weights(
    whole: Bundle, source: ExportSource, tmp_path: Path
) -> None:
    bundle = exported(tmp_path, source, {"predictor": "int8-qdq", "denoiser": "int8-qdq"}, whole.manifest)
    figures = compare_with_torch(bundle, source, ["predictor", "denoiser"])
    assert failed_figures(figures) == []
    for part, name in (("predictor", "shot"), ("predictor", "logits"), ("denoiser", "x0")):
        # What rounding costs is told; what the part itself adds to it is next to nothing.
        assert figures[part][f"{name}_relative_error"] > 1e-3
        assert figures[part][f"rounded_{name}_relative_error"] < 1e-4
    assert figures["predictor"]["rounded_strengths_equal_of_4"] == 4
    others = failed_figures(compare_with_torch(bundle, from_seed(1, "tiny"), ["predictor", "denoiser"]))
    assert [line.rpartition(" relative")[0] for line in others] == [
        "predictor: rounded shot",
        "predictor: rounded logits",
        "denoiser: rounded x0",
        "denoiser: rounded latent",
    ]


def test_towers_are_held_to_torch_and_other_towers_are_named(tmp_path: Path) -> None:
    size = TINY.encoder
    write_t5(tmp_path / "t5", size.text_width, 2)
    write_open_clip(tmp_path / "clip", size.image_width)
    source = replace(from_seed(0, "tiny"), towers=open_towers(tmp_path / "t5", tmp_path / "clip", size))
    towers, pocket = {"text_tower": "int8-qdq", "image_tower": "fp16"}, open_bundle(find("pocket"))
    bundle = exported(tmp_path, source, towers, pocket.manifest, provenance={}, reader=None)
    figures = compare_with_torch(bundle, source, list(towers))
    assert failed_figures(figures) == []
    for name in towers:
        assert figures[name]["rounded_features_relative_error"] < 1e-5 < figures[name]["features_relative_error"]
    write_t5(tmp_path / "t5", size.text_width, 2, seed=5)
    write_open_clip(tmp_path / "clip", size.image_width, seed=5)
    other = replace(source, towers=open_towers(tmp_path / "t5", tmp_path / "clip", size))
    failed = failed_figures(compare_with_torch(bundle, other, list(towers)))
    assert {line.partition(":")[0] for line in failed} == set(towers)
    with pytest.raises(ConfigError, match="the source has no towers to compare with"):
        compare_with_torch(bundle, replace(source, towers=None), ["text_tower"])


def test_a_part_of_other_weights_is_named(whole: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(whole.folder, tmp_path / "tiny")
    made_of = {**whole.manifest.provenance, "made_of": {"seed": 1, "size": "tiny"}}
    write_manifest(copy, replace(whole.manifest, provenance=made_of))
    assert run_command(add_command, [str(copy), "--parts", "encoder", "--json"]) == DIFFERS
    said = json.loads(capsys.readouterr().out)
    assert said["wrong"][0].startswith("encoder: shot relative error") and set(said["parts"]) == {"encoder"}


def test_what_a_bundle_was_made_of_must_be_there(whole: Bundle) -> None:
    with pytest.raises(ConfigError, match="--against"):
        source_from_provenance(open_bundle(find("pocket")), None)
    made_of = {"made_of": {"release": "Qiqi", "picture": [32, 48]}}
    published = replace(whole, manifest=replace(whole.manifest, provenance=made_of))
    with pytest.raises(ConfigError, match="--checkpoints DIR"):
        source_from_provenance(published, None)


@torch.no_grad()
def test_a_streamed_network_holds_one_block_and_computes_the_same() -> None:
    size = replace(TINY.denoiser, layers=4)
    whole = scattered(Denoiser(size))
    weights = CountedWeights({"denoiser.": whole})
    random = torch.Generator().manual_seed(1)
    shape = (1, size.latent_frames, size.latent_channels, size.latent_height, size.latent_width)
    inputs = (torch.randn(shape, generator=random), torch.tensor([500.0]), torch.tensor([10.0]))
    shot = torch.randn(1, size.shot_tokens, size.hidden, generator=random)
    lines: list[str] = []
    streamed = block_streaming(lambda: Denoiser(size), weights, "denoiser.", lines.append)
    np.testing.assert_array_equal(streamed(*inputs, shot).numpy(), whole(*inputs, shot).numpy())
    assert [line.partition(" after")[0] for line in lines] == ["block 1 of 4", "block 2 of 4"]
    block = sum(value.nbytes for value in whole.blocks[0].state_dict().values())
    assert weights.most_alive - weights.alive == block


def test_one_weight_is_in_memory_at_a_time_while_a_part_is_written(tmp_path: Path) -> None:
    size = TINY.encoder
    held = CountedWeights({"encoder.": scattered(Encoder(size))})
    write_streamed(tmp_path, encoder_part(size, held), "fp16")
    largest = max(held.state, key=lambda name: held.state[name].nbytes)
    assert held.most_alive == held.state[largest].nbytes
    assert held.requests[largest] == 1, "large ones are made once"
