"""The published formats are read whole: tiny checkpoints written in those forms, and the full-size key lists."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from animegamer_export.build.sizes import FULL
from animegamer_export.checkpoints import releases
from animegamer_export.checkpoints.files import TensorFile, count_pieces, open_tensors, open_torch
from animegamer_export.checkpoints.weight_map import WeightMap
from animegamer_export.parity.fixtures import open_folder, vae_weights
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
QKV = "model.diffusion_model.transformer.layers.0.attention.query_key_value"
PEFT = "llm.base_model.model."
MISTRAL_CONFIG = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
}


def golden(name: str) -> dict[str, Tensor]:
    about = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return {key: value for file in about["files"] for key, value in load_file(GOLDEN / file).items()}


def full_size(name: str) -> TensorFile:
    keys = json.loads(gzip.decompress((GOLDEN / "keys" / f"keys_{name}.json.gz").read_bytes()))

    def read(key: str) -> Tensor:
        return torch.empty(keys[key], device="meta")

    return TensorFile(Path(f"keys_{name}"), {key: tuple(shape) for key, shape in keys.items()}, read)


def write_denoiser(path: Path, tensors: dict[str, Tensor]) -> Path:
    torch.save({"module": tensors}, path)
    return path


def read_tiny_denoiser(path: Path) -> tuple[Denoiser, Encoder, WeightMap]:
    size, encoder_size, recipe = releases.open_denoiser(path, 8, 12)
    with torch.device("meta"):
        denoiser, encoder = Denoiser(size), Encoder(encoder_size)
    return with_weights(denoiser, recipe, "denoiser."), with_weights(encoder, recipe, "encoder."), recipe


# -- the full-size key lists ---------------------------------------------------------------------------------------


def full_size_map(name: str) -> tuple[TensorFile, WeightMap]:
    file = full_size(name)
    with torch.device("meta"):
        if name == "dit":
            size, encoder_size = releases.denoiser_sizes(file, 60, 90)
            assert (size, encoder_size) == (FULL.denoiser, FULL.encoder)
            return file, releases.denoiser_weight_map(file, Denoiser(size), Encoder(encoder_size))
        if name == "vae":
            assert releases.vae_size(file) == FULL.vae
            return file, releases.vae_weight_map(file, VaeDecoder(FULL.vae))
        predictor = releases.predictor_size(MISTRAL_CONFIG, file, Path("config.json"))
        assert predictor == FULL.predictor
        return file, releases.predictor_weight_map(file, Predictor(predictor))


@pytest.mark.parametrize(
    ("name", "unused", "ranks"),
    [
        ("dit", r".*output_mix_layer_norm.*", [releases.DENOISER_RANK]),
        ("vae", r"encoder\..*", []),
        ("mllm", r".*\.original_module\..*", [releases.PREDICTOR_RANK]),
    ],
)
def test_every_full_size_key_is_used_or_known_to_be_unused(name: str, unused: str, ranks: list[int]) -> None:
    file, weights = full_size_map(name)
    used = {source.weight for source in weights.sources.values()}
    used |= {key for source in weights.sources.values() for pair in source.pairs for key in pair}
    assert used | set(weights.unused) == set(file.shapes)
    assert all(re.fullmatch(unused, key) for key in weights.unused)
    assert weights.ranks == ranks


# -- the denoiser's file -------------------------------------------------------------------------------------------


def test_a_tiny_denoiser_checkpoint_gives_the_recorded_step(tmp_path: Path) -> None:
    tensors = golden("dit_weights_a")
    extra = {"first_stage_model.decoder.x": torch.zeros(1), "conditioner.y": torch.zeros(1)}
    denoiser, encoder, recipe = read_tiny_denoiser(write_denoiser(tmp_path / "denoiser.pt", {**tensors, **extra}))
    step = golden("dit_step_a")
    with torch.no_grad():
        shot = torch.cat([encoder.unconditional()[None], step["aroutput"]])
        v = denoiser(step["x"], step["timesteps"], step["flow_idx"], shot)
    assert (v - step["output"]).abs().max() <= 1e-5
    assert set(extra) <= set(recipe.unused)


def test_half_precision_weights_are_merged_in_float32(tmp_path: Path) -> None:
    tensors = {key: value.half() for key, value in golden("dit_weights_a").items()}
    denoiser, _, _ = read_tiny_denoiser(write_denoiser(tmp_path / "a.pt", tensors))
    merged = denoiser.state_dict()["blocks.0.attention.output.weight"]
    dense = QKV.replace("query_key_value", "dense")
    down, up = tensors[f"{dense}.matrix_A.0"].float(), tensors[f"{dense}.matrix_B.0"].float()
    expected = tensors[f"{dense}.original.weight"].float() + up @ down / len(down)
    assert merged.dtype == torch.float32
    torch.testing.assert_close(merged, expected)


def test_all_faults_come_in_one_error_with_the_nearest_name(tmp_path: Path) -> None:
    tensors = golden("dit_weights_a")
    del tensors["model.diffusion_model.time_embed.0.bias"]
    tensors["model.diffusion_model.time_embed.0.bais"] = torch.zeros(64)
    tensors["model.diffusion_model.flow_embed.0.bias"] = torch.zeros(3)
    del tensors[f"{QKV}.matrix_B.1"]
    tensors[f"{QKV}.matrix_A.0"] = torch.zeros(4, 5)
    bias = "model.diffusion_model.time_embed.2.bias"
    tensors[bias] = tensors[bias].to(torch.int32)
    with pytest.raises(CheckpointError) as caught:
        read_tiny_denoiser(write_denoiser(tmp_path / "a.pt", tensors))
    error = caught.value
    assert "model.diffusion_model.time_embed.0.bias" in error.missing
    assert any(f"{QKV}.matrix_A.1" in key for key in error.missing)
    assert error.unexpected == (
        "model.diffusion_model.time_embed.0.bais (nearest: model.diffusion_model.time_embed.0.bias)",
    )
    assert set(error.misshapen) == {"model.diffusion_model.flow_embed.0.bias", f"{QKV}.matrix_A.0", bias}
    assert error.misshapen[bias] == ("int32", "floating point")
    assert str(tmp_path / "a.pt") in str(error)


def test_weights_that_contradict_the_format_are_refused(tmp_path: Path) -> None:
    tensors, path = golden("dit_weights_a"), tmp_path / "a.pt"
    positions = tensors["model.diffusion_model.mixins.pos_embed.pos_embedding"].clone()
    positions[0, 3] = 1.0
    twice = {f"{QKV}.weight": tensors[f"{QKV}.original.weight"]}
    for change, text in (
        (twice, "unexpected"),
        ({"model.diffusion_model.mixins.pos_embed.pos_embedding": positions}, "not zero"),
    ):
        with pytest.raises(CheckpointError, match=text):
            read_tiny_denoiser(write_denoiser(path, {**tensors, **change}))
    with pytest.raises(CheckpointError, match=r"another frame size(?s:.*)pos_embedding .*--picture"):
        releases.open_denoiser(write_denoiser(path, tensors), 60, 90)


# -- files that are not what they should be ------------------------------------------------------------------------


class Executes:
    """A pickle of this would create a folder when loaded carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    proof, path = tmp_path / "ran", tmp_path / "bad.pt"
    torch.save({"module": Executes(proof)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"bad\.pt: .*code to be run .*\((posix|nt)\.mkdir\)") as caught:
        releases.open_denoiser(path, 60, 90)
    assert not proof.exists()
    assert "weights_only" not in str(caught.value), "torch's way to run it all the same is no advice of ours"


@pytest.mark.parametrize("zipped", [True, False])
def test_a_trainer_s_file_gives_the_same_weights_and_builds_nothing_else(tmp_path: Path, zipped: bool) -> None:
    """What SwissArmyTransformer and DeepSpeed write beside `module`, and a pickle that would run code."""
    tensors, path = golden("dit_weights_a"), tmp_path / "trained.pt"
    name = "model.diffusion_model.time_embed.0.weight"
    module = OrderedDict(tensors)
    module[name] = torch.nn.Parameter(torch.stack([tensors[name].T, tensors[name].T])[1].T)
    beside = {
        "iteration": 12000,
        "client_lr_scheduler": {"num_iters": 12000, "decay_style": "cosine"},
        "random_rng_state": random.getstate(),
        "np_rng_state": np.random.RandomState(3).get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.get_rng_state(),
        "rng_tracker_states": {"model-parallel-rng": torch.get_rng_state()},
        "loss": np.float32(0.25),
        "sparse_tensor_module_names": {"a", "b"},
        "ds_config": Namespace(zero={"stage": 2}),
        "optimizer": torch.optim.AdamW([torch.zeros(3)]),
        "dp_world_size": 8,
        "callback": Executes(tmp_path / "ran"),
    }
    torch.save({**beside, "module": module}, path, _use_new_zipfile_serialization=zipped)
    file = open_torch(path, "module")
    assert list(file.shapes) == list(tensors)
    assert all(torch.equal(file.read(key), value) for key, value in tensors.items())
    assert not (tmp_path / "ran").exists()
    read_tiny_denoiser(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git LFS pointer.*git lfs pull"),
        (b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>", "web page.*/resolve/"),
    ],
)
def test_what_a_failed_download_leaves_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    mistral, adapter = tiny_predictor(tmp_path, False, "safetensors")
    openers: dict[Path, Callable[[], object]] = {
        tmp_path / "vae.pt": lambda: releases.open_vae(tmp_path / "vae.pt"),
        mistral / "model.safetensors": lambda: releases.open_predictor(mistral, adapter),
        mistral / "config.json": lambda: releases.open_predictor(mistral, adapter),
        adapter: lambda: releases.open_predictor(mistral, adapter),
        tmp_path / "tokenizer.model": lambda: count_pieces(tmp_path / "tokenizer.model", ""),
    }
    for path, opened in openers.items():
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"{path.name}: .*{said}"):
            opened()


def test_truncated_and_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    path = write_denoiser(tmp_path / "bad.pt", golden("dit_weights_a"))
    whole, flipped = path.read_bytes(), bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 0x10
    for content in (b"", whole[:10], whole[:100_000], whole[:-200]):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"bad\.pt"):
            releases.open_denoiser(path, 60, 90)
    path.write_bytes(flipped)
    with pytest.raises(CheckpointError, match=r"bad\.pt: damaged: wrong checksum of .*/data/\d+; download"):
        open_torch(path, "module")


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with pytest.raises(CheckpointError, match="no such file"):
        releases.open_vae(path)
    torch.save({"state_dict": {"a": torch.zeros(1)}}, path)
    with pytest.raises(CheckpointError, match="no entry 'module'; found state_dict"):
        releases.open_denoiser(path, 60, 90)
    with pytest.raises(CheckpointError, match=r"decoder\.up\.0"):
        releases.open_vae(path)
    for entries in ({"a": 3}, {5: torch.zeros(1)}):
        torch.save({"module": entries}, path)
        with pytest.raises(CheckpointError, match="not tensors with a name"):
            releases.open_denoiser(path, 60, 90)
    torch.save([1], path)
    with pytest.raises(CheckpointError, match="list"):
        open_torch(path)


# -- the vae's file ------------------------------------------------------------------------------------------------


def test_a_tiny_vae_checkpoint_gives_the_recorded_frames(tmp_path: Path) -> None:
    folder = open_folder(GOLDEN)
    tensors = vae_weights(folder, folder.sets["vae_decode_a"])
    torch.save({"state_dict": {**tensors, "encoder.conv_in.conv.bias": torch.zeros(1)}}, tmp_path / "vae.pt")
    size, recipe = releases.open_vae(tmp_path / "vae.pt")
    recorded = golden("vae_decode_a")
    with torch.no_grad():
        frames, _ = with_weights(VaeDecoder(size), recipe)(recorded["latent"][:, :, :3])
    assert (frames - recorded["output"][:, :, :9]).abs().max() <= 1e-4
    assert list(recipe.unused) == ["encoder.conv_in.conv.bias"]


# -- the predictor's folder and file -------------------------------------------------------------------------------


def tiny_predictor(folder: Path, base_in_adapter: bool, form: str) -> tuple[Path, Path]:
    """A Hugging Face folder (safetensors, bin or sharded) and pytorch_model.bin made of the golden weights."""
    tensors = golden("mllm_weights_a")
    base, adapter = {}, {}
    for key, value in tensors.items():
        plain = key.removeprefix(PEFT)
        is_base = ".base_layer." in key or ".original_module." in key
        if is_base:
            base[plain.replace(".base_layer", "").replace(".original_module", "")] = value
        if base_in_adapter or not is_base:
            adapter[key] = value
    base["model.embed_tokens.weight"] = torch.zeros(300, 64)
    base["lm_head.weight"] = torch.zeros(300, 64)
    base["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    mistral = folder / "mistral"
    mistral.mkdir()
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = {**MISTRAL_CONFIG, **small, "intermediate_size": 160}
    (mistral / "config.json").write_text(json.dumps(config), encoding="utf-8")
    base = {key: value.contiguous() for key, value in base.items()}
    if form == "safetensors":
        save_file(base, mistral / "model.safetensors")
    elif form == "bin":
        torch.save(base, mistral / "pytorch_model.bin")
    else:
        names = sorted(base)
        shards = {f"model-0000{n + 1}-of-00002.safetensors": names[n::2] for n in range(2)}
        for file, keys in shards.items():
            save_file({key: base[key] for key in keys}, mistral / file)
        weight_map = {key: file for file, keys in shards.items() for key in keys}
        (mistral / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    torch.save(adapter, folder / "pytorch_model.bin")
    return mistral, folder / "pytorch_model.bin"


@pytest.mark.parametrize(("base_in_adapter", "form"), [(True, "bin"), (False, "safetensors"), (False, "shards")])
def test_a_tiny_predictor_checkpoint_gives_the_recorded_shot(tmp_path: Path, base_in_adapter: bool, form: str) -> None:
    # The golden weights have alpha = rank = 4.
    size, recipe = releases.open_predictor(*tiny_predictor(tmp_path, base_in_adapter, form))
    predictor = with_weights(Predictor(size), replace(recipe, alpha=4.0))
    recorded = golden("mllm_1turn_a")
    ids = recorded["input_ids"]
    queries = recorded["attention_mask"][0] == -1
    mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril() | (queries[:, None] & queries[None])
    with torch.no_grad():
        hidden = predictor(ids, torch.full_like(ids, -1), mask[None], recorded["video_embeds"][0].flatten(0, -2))
        shot = predictor.output_resampler(hidden[:, queries])
    assert (shot - recorded["output_at_query_positions"]).abs().max() <= 1e-4
    assert "model.embed_tokens.weight" in recipe.unused
    assert any("inv_freq" in key for key in recipe.unused)


def test_the_adapters_alpha_counts(tmp_path: Path) -> None:
    _, recipe = releases.open_predictor(*tiny_predictor(tmp_path, True, "bin"))
    name = "blocks.0.attention.query.weight"
    plain, four, published = (
        recipe.weight(name),
        *(one.merged(name, torch.float32) for one in (replace(recipe, alpha=4.0), recipe)),
    )
    torch.testing.assert_close(published - plain, 8 * (four - plain))


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    mistral, adapter = tiny_predictor(tmp_path, False, "safetensors")
    config = json.loads((mistral / "config.json").read_text(encoding="utf-8"))
    for change, text in (
        ({"model_type": "llama"}, "not 'mistral'"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 1}, "layers.1."),
        ({"intermediate_size": 96}, "mlp"),
        (
            {"rope_theta": 1e6, "sliding_window": None},
            r"another Mistral(?s:.*)sliding_window \(found None, expected 4096",
        ),
        ({"rms_norm_eps": 1e-6}, r"rms_norm_eps \(found 1e-06, expected 1e-05\)"),
        ({"rope_theta": None, "rope_parameters": [1]}, r"rope_theta \(found None"),
    ):
        (mistral / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
        with pytest.raises(CheckpointError, match=text):
            releases.open_predictor(mistral, adapter)


def test_missing_pieces_of_the_folder_are_named(tmp_path: Path) -> None:
    mistral, adapter = tiny_predictor(tmp_path, False, "shards")
    (mistral / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="model-00002-of-00002.safetensors: no such file"):
        releases.open_predictor(mistral, adapter)
    (mistral / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match="neither model.safetensors nor pytorch_model.bin"):
        releases.open_predictor(mistral, adapter)
    (mistral / "config.json").write_text("[", encoding="utf-8")
    with pytest.raises(CheckpointError, match="config.json: not JSON .*; download it again"):
        releases.open_predictor(mistral, adapter)


@pytest.mark.parametrize("name", [5, "../pytorch_model.bin", "/etc/passwd"])
def test_an_index_that_names_no_file_beside_it_is_refused(tmp_path: Path, name: object) -> None:
    mistral, adapter = tiny_predictor(tmp_path, False, "shards")
    index = {"weight_map": {"model.norm.weight": name}}
    (mistral / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"index\.json: the index names files outside its folder"):
        releases.open_predictor(mistral, adapter)


def test_whole_numbers_in_a_safetensors_file_are_refused(tmp_path: Path) -> None:
    mistral, adapter = tiny_predictor(tmp_path, False, "safetensors")
    base = load_file(mistral / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({**base, name: base[name].to(torch.int8)}, mistral / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"{name} \(found I8, expected floating point\)"):
        releases.open_predictor(mistral, adapter)


def test_a_newer_config_that_keeps_rope_apart_is_read() -> None:
    config: dict[str, Any] = {**MISTRAL_CONFIG, "rope_parameters": {"rope_theta": 10000.0}}
    del config["rope_theta"]
    size = releases.predictor_size(config, open_tensors(golden("mllm_weights_a"), Path("x")), Path("config.json"))
    assert size.rope_theta == 10000.0
