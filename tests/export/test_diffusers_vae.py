"""CogVideoX's vae from the folder that diffusers publishes, held against diffusers' own decoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_release import PICTURE, write_diffusers_vae, write_release

from animegamer_export.build.weight_source import from_checkpoints
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.vae import VaeDecoder

BLOCKS = 3


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A tiny release without a vae."""
    folder = write_release(tmp_path)
    shutil.rmtree(folder / "CogVideoX-2b-sat")
    return folder


@torch.no_grad()
def test_the_vae_of_a_diffusers_folder_decodes_as_diffusers_does(checkpoints: Path) -> None:
    from diffusers import AutoencoderKLCogVideoX  # here, as every process of the tests reads all test files

    torch.manual_seed(11)
    network = AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * BLOCKS,
        up_block_types=("CogVideoXUpBlock3D",) * BLOCKS,
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
