"""The networks agree with the recorded reference, and a fixture that was tampered with does not pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from project import run_command
from safetensors.torch import load_file, save_file
from torch import Tensor

from animegamer_export.parity.checks import compare
from animegamer_export.parity.command import add_command
from animegamer_export.parity.report import check_folder
from animegamer_rt.errors import CheckpointError

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DIFFUSION_WEIGHTS = ("dit_weights_a",)


def copy_sets(to: Path, *names: str) -> Path:
    """A folder with copies of some of the golden sets."""
    to.mkdir(exist_ok=True)
    for name in names:
        about = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
        for file in (f"{name}.json", *about["files"]):
            shutil.copy(GOLDEN / file, to / file)
    return to


def change_tensor(folder: Path, file: str, key: str, change: Callable[[Tensor], Tensor]) -> None:
    tensors = load_file(folder / file)
    tensors[key] = change(tensors[key]).contiguous()
    save_file(tensors, folder / file)


def test_every_golden_set_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(add_command, [str(GOLDEN)]) == 0
    printed = capsys.readouterr().out
    recorded = {path.stem for path in GOLDEN.glob("*.json") if "_weights_" not in path.name}
    assert recorded == {line.split()[0] for line in printed.splitlines() if "  pass" in line}
    assert "FAIL" not in printed


def nudge(tensor: Tensor) -> Tensor:
    changed = tensor.clone()
    changed.view(-1)[7] += 1e-2
    return changed


@pytest.mark.parametrize(
    ("of", "file", "key"),
    [
        ("uncond_a", "uncond_a.safetensors", "uncond_embedding"),
        ("dit_step_a", "dit_step_a.safetensors", "output"),
        ("dit_step_a", "dit_weights_a.part1.safetensors", "model.diffusion_model.time_embed.0.weight"),
        ("encoder_a", "encoder_a.safetensors", "clip_features"),
        *(("sampler_n10_a", "sampler_n10_a.safetensors", key) for key in ("noise_used", "denoised_4", "guidance")),
    ],
)
def test_a_changed_number_fails(tmp_path: Path, of: str, file: str, key: str) -> None:
    folder = copy_sets(tmp_path, of, *DIFFUSION_WEIGHTS)
    change_tensor(folder, file, key, nudge)
    (result,) = check_folder(folder)
    assert not result.passed and result.worst.error > result.worst.tolerance


def test_a_folder_without_fixtures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        run_command(add_command, [str(tmp_path / "absent")])
    for _ in range(2):
        with pytest.raises(CheckpointError, match="no fixture set in the folder"):
            run_command(add_command, [str(tmp_path)])
        copy_sets(tmp_path, *DIFFUSION_WEIGHTS)


def test_a_file_that_is_no_set_is_named(tmp_path: Path) -> None:
    folder = copy_sets(tmp_path, "uncond_a", "encoder_a", *DIFFUSION_WEIGHTS)
    (folder / "notes.json").write_text('{"author": "somebody"}', encoding="utf-8")
    (folder / "dream_a.json").write_text('{"tensors": {}}', encoding="utf-8")
    passed = {result.name: result.passed for result in check_folder(folder)}
    assert passed == {"uncond_a": True, "encoder_a": True, "dream_a": False}
    (folder / "encoder_a.json").unlink()
    with pytest.raises(CheckpointError, match=r"encoder_a\.safetensors: recorded tensors that no description names"):
        check_folder(folder)
    (folder / "encoder_b.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"encoder_b\.json: not JSON"):
        check_folder(folder)


def test_a_recording_of_another_processor_passes_as_far_as_float64_shows_it_to_be_rounding() -> None:
    """On one set float64 was 1.65e-4 from the recording and our float32 2.1e-4 from float64, the other way."""
    exact = torch.full((3,), 0.5, dtype=torch.float64)
    recorded, ours = exact + 1.65e-4, exact - 2.1e-4
    assert compare("latent", ours, recorded, 1e-4).with_rounding(compare("latent", exact, recorded, 1e-4)).passed
    wrong = exact + 2e-3  # in float64 too
    assert (
        not compare("latent", wrong - 2.1e-4, recorded, 1e-4)
        .with_rounding(compare("latent", wrong, recorded, 1e-4))
        .passed
    )


def test_a_network_run_in_fewer_bits_does_not_excuse_itself() -> None:
    exact = torch.linspace(1.0, 2.0, 50, dtype=torch.float64)
    check = compare("shot", exact.to(torch.float16), exact.float(), 1e-6)
    assert not check.with_rounding(compare("shot", exact, exact.float(), 1e-6)).passed
