"""Checkpoints that are damaged, of another kind or would run code are refused, by the name of what is wrong."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import QKV, Executes, golden, read_tiny_denoiser, write_denoiser

from animegamer_export.checkpoints import files, releases
from animegamer_export.checkpoints.files import open_torch
from animegamer_rt.errors import CheckpointError


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
