"""`animegamer-rt distill`: a student and a light decoder are trained, in pieces if need be, and play as turbo."""

from __future__ import annotations

import errno
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from animegamer_export.distill import add, decoder, files, student, turns, work
from animegamer_export.distill.likeness import likeness
from animegamer_export.parts.light_decoder import activation_ranges
from animegamer_export.plan_search.measure import SearchBudget
from animegamer_rt import cli
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.networks import read_network
from animegamer_rt.bundle import files as bundle_files
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.light_decoder import LightDecoder, LightDecoderSize, with_before

GAMES = f"Qiqi runs on the beach.\n{'Now she waves. ' * 400}\nNow she waves.\n\nPonyo reads a book in the room.\n"
"""Its second text is too long, and left out."""


@pytest.fixture
def bundle(whole: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """The tiny bundle, to be changed. Its vae is random, so the light decoder's likeness to it is no matter."""
    monkeypatch.setattr(add, "LEAST_DB", 1.0)
    monkeypatch.setattr(add, "CALIBRATION_TURNS", 2)
    monkeypatch.setattr(add, "SearchBudget", lambda: SearchBudget(turns=1))
    (tmp_path / "games.txt").write_text(GAMES)
    return load(shutil.copytree(whole.folder, tmp_path / "tiny"))


def run(bundle: Bundle, *options: str, folder: str = "work") -> int:
    """The command with the least work."""
    least = ["--pairs", "3", "--batch", "2", "--student-steps", "3", "--decoder-steps", "4", "--teacher", "exact"]
    place = ["--work", str(bundle.folder.parent / folder), "--games", str(bundle.folder.parent / "games.txt")]
    return cli.main(["distill", str(bundle.folder), *least, *place, *options])


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_to_the_same_weights(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in bundle.folder.iterdir()}
    losses = student.student_loss

    def interrupted(*arguments: object) -> object:
        loss = losses(*arguments)  # type: ignore[arg-type]

        def at_step(step: int, generator: torch.Generator) -> Iterator[Tensor]:
            for number, one in enumerate(loss(step, generator)):
                yield one
                if step == 1 and number == 1:  # within the step
                    signal.raise_signal(signal.SIGINT)

        return at_step

    monkeypatch.setattr(work, "student_loss", interrupted)
    assert run(bundle) == 130
    assert "stopped after step 2 of 3; run the same command to continue" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in bundle.folder.iterdir()} == before
    monkeypatch.setattr(work, "student_loss", losses)
    missed = run(bundle)
    said = capsys.readouterr().out
    assert "shots" not in said and "student 3/3: loss" in said and "s a step" in said and "hours left" in said
    monkeypatch.setattr(work.Distillation, "train_decoder", stopped)  # the student is there by then
    assert run(bundle, folder="again") == 130
    one, other = (load_file(bundle.folder.parent / name / "student.safetensors") for name in ("work", "again"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    made = load(bundle.folder)
    assert made.manifest.plans["turbo"].parts == add.OWN and made.fingerprint == bundle.fingerprint
    # Random pictures are not alike, so goals are missed: they are named, and the plan has no figures to be played by.
    assert missed == 1 and "turbo misses these goals, so it stays unmeasured" in said and "SSIM against exact" in said
    assert made.manifest.plans["turbo"].fidelity == {} and made.default_plan == bundle.default_plan


def test_a_low_rank_learns_what_it_may(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work.Distillation, "train_decoder", stopped)
    assert run(bundle, "--rank", "2", "--student-steps", "20") == 130
    network, plan = files.read_student(bundle.folder.parent / "work" / "student.safetensors", bundle)
    teacher = read_network(bundle, TorchDevice(torch.float32), DEFAULT_PARTS, DENOISER)[0]
    apart = {
        name: one - other.float()
        for (name, one), other in zip(network.named_parameters(), teacher.parameters(), strict=True)
    }
    changed = {name for name, difference in apart.items() if difference.abs().max() > 0}
    assert changed and all("blocks." in name and name.endswith("weight") for name in changed)
    for name in changed:
        values = torch.linalg.svdvals(apart[name])
        assert values[2] < 0.2 * values[0]  # float16 rounds the sum


def tiny_denoiser(**sizes: int) -> Denoiser:
    return Denoiser(
        DenoiserSize(
            **{"hidden": 32, "layers": 2, "heads": 2, "time_width": 16, **sizes}, latent_height=8, latent_width=12
        )
    )


@pytest.mark.parametrize("rank", [0, 2])
def test_memory_is_what_arithmetic_says(rank: int) -> None:
    torch.manual_seed(0)
    network = tiny_denoiser()
    if rank:
        student.lower_rank(network, rank)
    optimisers = student.student_optimisers(network, 1, 1, rank)
    for weight in network.parameters():
        weight.grad = torch.ones_like(weight) if weight.requires_grad else None
    gradients = sum(weight.grad.nbytes for weight in network.parameters() if weight.grad is not None)
    optimisers.update(0)
    states = [each for part in optimisers.state_dict().values() for each in part["state"].values()]
    kept = sum(one.nbytes for each in states for one in each.values() if one.ndim > 0)
    weights = sum(weight.nbytes for weight in network.parameters())
    assert student.trained_bytes(network) == weights + 2 * gradients + kept  # the average is as large as the gradients
    with torch.device("meta"):
        full = Denoiser(DenoiserSize(1920, 30, 30, 512, 60, 90))
        if rank:
            student.lower_rank(full, 64)
    gib = student.trained_bytes(full) / 2**30
    assert (3.5 < gib < 5.0) if rank else (25.0 < gib < 29.0)


def test_recomputed_blocks_give_the_same_gradients() -> None:
    torch.manual_seed(0)
    network, gradients = tiny_denoiser(), []
    given = torch.randn(2, 5, 16, 8, 12), torch.tensor([999.0, 19.0]), torch.ones(2), torch.randn(2, 226, 32)
    for again in (False, True):
        if again:
            student.recompute_blocks(network)
        network.zero_grad()
        network(*given).square().mean().backward()
        gradients.append([weight.grad.clone() for weight in network.parameters() if weight.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_the_decoder_learns_and_its_rounding_is_that_of_8_bits(tmp_path: Path) -> None:
    """Frames of a decoder of the same form: some are learned, more than the linear start can."""
    torch.manual_seed(0)
    size = LightDecoderSize((16, 8), (1, 1))
    true, network = LightDecoder(size).eval(), LightDecoder(size)
    latents = torch.randn(12, 5, 16, 8, 12)
    with torch.no_grad():
        frames = torch.stack([true(one, None) for one in latents])
        shown = (frames / frames.std() * 0.3).clamp(-1, 1).add(1).mul(127.5).byte().permute(0, 1, 3, 4, 2)
    save_file({"latent": latents.half(), "frames": shown.contiguous()}, turns.shard_path(tmp_path, turns.CLIPS, 0))
    rows = turns.Rows(tmp_path, [turns.CLIPS], [0])
    decoder.start(network, rows)
    given = with_before(latents[0], None)

    def error() -> float:
        with torch.no_grad():
            drawn = network(latents[0], None).add(1).mul(127.5).permute(0, 2, 3, 1)
        return float((drawn - shown[0]).square().mean())

    first = error()
    loss = decoder.decoder_loss(network, rows, 60)
    optimisers = decoder.decoder_optimisers(network, 60)
    for step in range(60):
        for one in loss(step, torch.Generator().manual_seed(step)):
            one.backward()
        optimisers.update(step)
    assert error() < 0.95 * first
    with torch.no_grad():
        ranges = activation_ranges(network, [latents[:1]])
        plain, rounded = network.decode(given), decoder.decode_rounded(network, given, ranges)
    assert 0 < (plain - rounded).abs().mean() < 0.05


def test_likeness_of_a_clip() -> None:
    rng = np.random.default_rng(1)
    true = np.full((17, 32, 48, 3), 90, np.uint8)
    true[:, 4:8, 4:8] = rng.integers(0, 256, (17, 4, 4, 3))
    same = likeness([true], [true])
    assert same["edges"] == same["motion"] == 1.0 and same["motion_error"] == 0.0
    flickering = true.copy()
    flickering[::2, 24:, 32:] += 3
    true[:, 24:, 32:] += rng.integers(0, 2, (17, 8, 16, 3), np.uint8)
    found = likeness([flickering], [true])
    assert found["flicker"] > 3 and found["psnr_db"] > 40 and found["motion"] > 1
    assert likeness([np.full_like(true, 90)], [true])["motion_error"] == 1.0


def in_4_bits(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    parts = bundle.manifest.parts
    changed = {**parts, "denoiser": replace(parts["denoiser"], precision="nf4")}
    write_manifest(bundle.folder, replace(bundle.manifest, parts=changed))
    return []


def without_room(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(bundle_files, "free_bytes", lambda folder: 1000)
    return []


def of_other_options(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    (bundle.folder.parent / "work").mkdir()
    (bundle.folder.parent / "work" / "distill.json").write_text('{"rank": 4}')
    return []


def no_games(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    (bundle.folder.parent / "games.txt").write_text("\n\n")
    return []


def a_damaged_shard(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    (bundle.folder.parent / "work").mkdir()
    turns.shard_path(bundle.folder.parent / "work", turns.SHOTS, 0).write_bytes(b"half")
    return []


def no_light_decoder(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(work.Distillation, "train_student", stopped)  # not reached
    return ["--light-decoder", str(bundle.folder.parent / "no.safetensors")]


def without_a_gpu(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(torch.cuda, "is_available", lambda: False)
    return ["--device", "torch"]


def a_full_disk(bundle: Bundle, patch: pytest.MonkeyPatch) -> list[str]:
    def full(shard: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(turns, "save_file", full)
    return []


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (in_4_bits, "cannot read the quantised weights of denoiser"),
        (without_room, "not enough space on the disk"),
        (of_other_options, "what another distillation made.*'rank': 4.*another --work folder"),
        (no_games, "no game was found"),
        (a_full_disk, "cannot be written.*No space left.*it continues from there"),
        (a_damaged_shard, "shots-0000.safetensors: cannot be read.*delete it"),
        (no_light_decoder, "no.safetensors: no such file"),
        (without_a_gpu, "without CUDA|GPU"),
        (lambda bundle, _: ["--work", str(bundle.folder)], "the bundle's own folder"),
        (lambda *_: ["--timesteps", "999,x"], "not timesteps.*a list like 999,319,19"),
        (lambda *_: ["--timesteps", "999,500"], "impossible noise"),
        (lambda *_: ["--teacher", "gentle"], "no plan 'gentle'"),
    ],
)
def test_what_cannot_be_distilled_is_refused_in_words(
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[Bundle, pytest.MonkeyPatch], list[str]],
    said: str,
) -> None:
    options = prepare(bundle, monkeypatch)
    before = {path.name: path.read_bytes() for path in bundle.folder.iterdir()}
    assert run(bundle, *options) == 2
    assert re.search(said, capsys.readouterr().err.replace("\n", " "))
    assert {path.name: path.read_bytes() for path in bundle.folder.iterdir()} == before
    assert not list(bundle.folder.parent.rglob("*.part"))
