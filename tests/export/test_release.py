"""From tiny checkpoints in the published formats to a turn that equals the reference path's."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from tiny_release import PICTURE, write_release
from torch_engines import torch_engines

from animegamer_export import checkpoints
from animegamer_export.command.layout import find_release
from animegamer_export.command.progress import Progress
from animegamer_export.command.source import from_checkpoints
from animegamer_export.command.steps import Request, export
from animegamer_rt.backends.onnxruntime import open_engines
from animegamer_rt.bundle import Bundle, find, load
from animegamer_rt.errors import CheckpointError
from animegamer_rt.events import Event, FrameReady, StatePredicted
from animegamer_rt.pipeline import open_rooms, run_turn
from animegamer_rt.session import Session
from animegamer_rt.state import Instruction

TEXTS = ("Mirel runs quickly at the beach.", "Mirel waves.")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_release(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def bundle(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("bundles") / "qiqi"
    precision = dict.fromkeys(("predictor", "denoiser", "vae", "encoder"), "fp32")
    made = export(
        from_checkpoints(release, "Qiqi", *PICTURE), Request(precision, out), Progress(Console(file=io.StringIO()))
    )
    assert made is not None
    return load(made.folder)


def test_a_turn_equals_the_reference_paths(release: Path, bundle: Bundle) -> None:
    found = find_release(release, "Qiqi")
    both = checkpoints.read_denoiser(found.denoiser, latent_height=8, latent_width=12)
    reference = torch_engines(
        checkpoints.read_predictor(found.mistral, found.adapter).predictor,
        both.denoiser,
        both.encoder,
        checkpoints.read_vae(found.vae).decoder,
    )
    played = []
    for engines in (open_engines(bundle, threads=1), reference):
        session, events = Session.start(bundle, seed=7), list[Event]()
        for text in TEXTS:
            events += run_turn(open_rooms(bundle, engines, "fast"), session, Instruction.parse(text))
        states = [event.game_state for event in events if isinstance(event, StatePredicted)]
        clip = np.stack([event.frame for event in events if isinstance(event, FrameReady)]).astype(np.int16)
        played.append((states, clip))
    (states, clip), (reference_states, reference_clip) = played
    assert states == reference_states
    assert clip.shape == (34, *PICTURE, 3) and clip.std() > 1
    assert np.abs(clip - reference_clip).max() <= 1


def test_the_bundle_says_what_it_was_made_of(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert manifest.origin == "checkpoints" and "Qiqi" in manifest.description
    assert "European Union" in manifest.licence
    assert {part.precision for part in manifest.parts.values()} == {"fp32"}
    assert {name: len(entry.plan["steps"]) for name, entry in manifest.plans.items()} == {
        "exact": 50,
        "balanced": 18,
        "fast": 10,
    }
    assert not any(entry.fidelity for entry in manifest.plans.values())  # shown as "not measured"
    assert manifest.provenance["made_of"]["release"] == "Qiqi"
    assert bundle.path("tokenizer.model").is_file()


def test_all_that_is_missing_comes_in_one_error(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "partly")
    (tmp_path / "partly/Mistral-7B-Instruct-v0.1/tokenizer.model").unlink()
    (tmp_path / "partly/AnimeGamer/VDM_Decoder-Qiqi/1/mp_rank_00_model_states.pt").unlink()
    with pytest.raises(CheckpointError) as caught:
        from_checkpoints(tmp_path / "partly", "Qiqi", *PICTURE)
    assert len(caught.value.missing) == 2
    assert "tokenizer.model" in caught.value.missing[0] and "mp_rank_00" in caught.value.missing[1]
    assert "3d-vae.pt" in str(caught.value)  # the tree that shows how it should be


def test_an_unknown_character_is_told_which_are_there(release: Path) -> None:
    with pytest.raises(CheckpointError, match=r"--release \(Qiqi\)"):
        from_checkpoints(release, "Ponyo", *PICTURE)


def test_a_tokenizer_of_another_language_model_is_refused(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "other")
    shutil.copyfile(find("pocket") / "tokenizer.model", tmp_path / "other/Mistral-7B-Instruct-v0.1/tokenizer.model")
    with pytest.raises(CheckpointError, match="not the language model's"):
        from_checkpoints(tmp_path / "other", "Qiqi", *PICTURE)
