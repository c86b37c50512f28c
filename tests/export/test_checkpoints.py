"""The published formats are read whole; what is damaged, of another kind or would run code is refused by its name."""

from __future__ import annotations

import gzip
import json
import random
import re
from argparse import Namespace
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_checkpoints import (
    GOLDEN,
    MISTRAL_CONFIG,
    QKV,
    Executes,
    golden,
    read_tiny_denoiser,
    tiny_predictor,
    write_denoiser,
)

from animegamer_export.build.sizes import FULL
from animegamer_export.checkpoints import files, releases
from animegamer_export.checkpoints.files import TensorFile, open_torch
from animegamer_export.checkpoints.predictor import open_predictor, predictor_size, predictor_weight_map
from animegamer_export.checkpoints.weight_map import WeightMap
from animegamer_export.parity.fixtures import open_folder, vae_weights
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder


def full_size(name: str) -> TensorFile:
    keys = json.loads(gzip.decompress((GOLDEN / "keys" / f"keys_{name}.json.gz").read_bytes()))
    return TensorFile(Path(f"keys_{name}"), {key: torch.empty(shape, device="meta") for key, shape in keys.items()})


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
        predictor = predictor_size(MISTRAL_CONFIG, file, Path("config.json"))
        assert predictor == FULL.predictor
        return file, predictor_weight_map(file, Predictor(predictor))


@pytest.mark.parametrize(
    ("name", "unused", "ranks"),
    [
        ("dit", r".*output_mix_layer_norm.*", [64]),
        ("vae", r"encoder\..*", []),
        ("mllm", r".*\.original_module\..*", [32]),
    ],
)
def test_every_full_size_key_is_used_or_known_to_be_unused(name: str, unused: str, ranks: list[int]) -> None:
    file, weights = full_size_map(name)
    used = {source.weight for source in weights.sources.values()}
    used |= {key for source in weights.sources.values() for pair in source.pairs for key in pair}
    assert used | set(weights.unused) == set(file.shapes)
    assert all(re.fullmatch(unused, key) for key in weights.unused)
    assert weights.ranks == ranks


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


@pytest.mark.parametrize("zipped", [True, False])
def test_a_trainer_s_file_gives_the_same_weights_and_builds_nothing_else(tmp_path: Path, zipped: bool) -> None:
    """What SwissArmyTransformer and DeepSpeed write beside `module`."""
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
    }
    torch.save({**beside, "module": module}, path)
    file = open_torch(path)
    assert list(file.shapes) == list(tensors)
    assert all(torch.equal(file.tensors[key], value) for key, value in tensors.items())
    read_tiny_denoiser(path)


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


@pytest.mark.parametrize("base_in_adapter", [True, False])
def test_a_tiny_predictor_checkpoint_gives_the_recorded_shot(tmp_path: Path, base_in_adapter: bool) -> None:
    # The golden weights have alpha = rank = 4.
    size, recipe = open_predictor(*tiny_predictor(tmp_path, base_in_adapter), alpha=4.0)
    predictor = with_weights(Predictor(size), recipe)
    recorded = golden("mllm_1turn_a")
    ids = recorded["input_ids"]
    queries = recorded["attention_mask"][0] == -1
    mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril() | (queries[:, None] & queries[None])
    with torch.no_grad():
        hidden = predictor(ids, torch.full_like(ids, -1), mask[None], recorded["video_embeds"][0].flatten(0, -2))
        shot = predictor.output_resampler(hidden[:, queries])
    assert (shot - recorded["output_at_query_positions"]).abs().max() <= 1e-4
    assert "llm.base_model.model.model.embed_tokens.weight" in recipe.unused
    assert any("inv_freq" in key for key in recipe.unused)


def test_all_faults_come_in_one_error(tmp_path: Path) -> None:
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
    assert error.unexpected == ("model.diffusion_model.time_embed.0.bais",)
    assert set(error.misshapen) == {"model.diffusion_model.flow_embed.0.bias", f"{QKV}.matrix_A.0", bias}
    assert error.misshapen[bias] == ("int32", "floating point")
    assert str(tmp_path / "a.pt") in str(error)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    proof, path = tmp_path / "ran", tmp_path / "bad.pt"
    torch.save({"module": Executes(proof)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"bad\.pt: .*would run code .*\((posix|nt)\.mkdir\)") as caught:
        releases.open_denoiser(path, 60, 90)
    assert not proof.exists()
    assert "weights_only" not in str(caught.value), "torch's way to run it all the same is no advice of ours"


def test_what_pytorch_does_not_fill_without_code_is_named(tmp_path: Path) -> None:
    torch.save({"module": {}, "state": defaultdict(dict, {"step": {"a": 1}})}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=r"run code \(.*collections\.defaultdict\); .*save the weights alone"):
        open_torch(tmp_path / "a.pt")


def test_truncated_and_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    path = write_denoiser(tmp_path / "bad.pt", golden("dit_weights_a"))
    whole, flipped = path.read_bytes(), bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 0x10
    for content in (b"", whole[:10], whole[:100_000], whole[:-200]):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"bad\.pt"):
            releases.open_denoiser(path, 60, 90)
    path.write_bytes(flipped)
    with pytest.raises(CheckpointError, match=r"bad\.pt: damaged: checksum mismatch in .*/data/\d+; download"):
        open_torch(path)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with pytest.raises(CheckpointError, match="no such file"):
        releases.open_vae(path)
    torch.save({"state_dict": {"a": torch.zeros(1)}}, path)
    with pytest.raises(CheckpointError, match="not a denoiser checkpoint"):
        releases.open_denoiser(path, 60, 90)
    with pytest.raises(CheckpointError, match=r"decoder\.up\.0"):
        releases.open_vae(path)
    for entries in ({"a": 3}, {5: torch.zeros(1)}):
        torch.save({"module": entries}, path)
        with pytest.raises(CheckpointError, match="not named tensors"):
            releases.open_denoiser(path, 60, 90)
    torch.save([1], path)
    with pytest.raises(CheckpointError, match="list"):
        open_torch(path)


def test_a_disk_that_cannot_map_files_is_blamed_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_device(*_: object, **__: object) -> None:
        raise OSError(19, "No such device")

    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(8) + b"{}")
    monkeypatch.setattr(files, "safe_open", no_device)
    with pytest.raises(
        CheckpointError, match=r"cannot be read \(\[Errno 19\] No such device\); copy it to a local disk"
    ):
        files.open_safetensors(path)
