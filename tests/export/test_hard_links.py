"""Two characters of one release: what they have in common lies on the disk once, and is loaded once."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
from project import run_command
from tiny_release import add_character, write_release

from animegamer_export.build.command import add_command
from animegamer_export.build.hard_links import hard_link_shared
from animegamer_rt.backends.interface import Engines, PartCache
from animegamer_rt.backends.onnxruntime import loader as onnxruntime
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.diagnose.bundle_info import describe_size
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

OWN = {"denoiser.onnx", "denoiser.weights", "encoder.onnx", "encoder.weights"}
"""What differs between the two: the encoder lies in the denoiser's checkpoint, and graphs hold their small weights."""

PREDICTOR = {"predictor.weights", "predictor.onnx"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_release(tmp_path_factory.mktemp("checkpoints"))
    add_character(folder, "Ponyo")
    return folder


def export(release: Path, out: Path, *options: str) -> str:
    arguments = ["--checkpoints", str(release), "--picture", "32x48", "--out", str(out)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run_command(add_command, [*arguments, *options]) == 0
    return printed.getvalue()


@pytest.fixture(scope="module")
def exported(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundles qiqi and ponyo, each exported where nothing else was."""
    folder = tmp_path_factory.mktemp("exported")
    for place, name in (("one", "Qiqi"), ("two", "Ponyo")):
        export(release, folder / place / name.lower(), "--release", name)
    return folder


@pytest.fixture
def both(exported: Path, tmp_path: Path) -> tuple[Bundle, Bundle]:
    """The two bundles side by side, not shared yet."""
    shutil.copytree(exported / "one" / "qiqi", tmp_path / "qiqi")
    shutil.copytree(exported / "two" / "ponyo", tmp_path / "ponyo")
    return load(tmp_path / "qiqi"), load(tmp_path / "ponyo")


def in_common(one: Bundle, other: Bundle) -> set[str]:
    return {name for name in one.manifest.files if one.path(name).samefile(other.path(name))}


def clip(bundle: Bundle, engines: Engines) -> np.ndarray:
    pipeline, session = Pipeline.open(bundle, engines), Session.start(bundle, seed=7)
    events = pipeline.run_turn(session, Instruction.parse("Mirel waves."))
    return np.stack([event.frame for event in events if isinstance(event, FrameReady)])


def test_equal_files_of_two_characters_become_one(both: tuple[Bundle, Bundle]) -> None:
    qiqi, ponyo = both
    linked = hard_link_shared(ponyo)
    assert set(linked) == {"qiqi"}
    assert set(linked["qiqi"]) == in_common(qiqi, ponyo) == set(ponyo.manifest.files) - OWN
    assert load(qiqi.folder) == qiqi and load(ponyo.folder) == ponyo
    assert ponyo.shared_bytes == ponyo.bytes - sum(ponyo.manifest.files[name].bytes for name in OWN)
    assert f"{ponyo.shared_bytes / 1e6:.1f} MB shared" in describe_size(ponyo)
    assert hard_link_shared(ponyo) == hard_link_shared(qiqi) == {}


def test_a_character_exported_again_leaves_the_other_as_it_is(release: Path, both: tuple[Bundle, Bundle]) -> None:
    qiqi, ponyo = both
    hard_link_shared(ponyo)
    export(release, ponyo.folder, "--release", "Ponyo", "--precision", "predictor=fp32")
    assert load(qiqi.folder) == qiqi
    assert in_common(qiqi, load(ponyo.folder)) == set(qiqi.manifest.files) - OWN - PREDICTOR
    shutil.rmtree(ponyo.folder)
    assert load(qiqi.folder) == qiqi and qiqi.shared_bytes == 0


def test_a_damaged_twin_is_not_taken(both: tuple[Bundle, Bundle]) -> None:
    qiqi, ponyo = both
    path = qiqi.path("vae.weights")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert "vae.weights" not in hard_link_shared(ponyo)["qiqi"]
    assert load(ponyo.folder) == ponyo


def test_where_the_disk_has_no_links_the_files_stay_copies(
    both: tuple[Bundle, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuses)
    qiqi, ponyo = both
    assert hard_link_shared(ponyo) == {} and in_common(qiqi, ponyo) == set()
    assert load(ponyo.folder) == ponyo and not list(ponyo.folder.glob("*.link"))


def test_the_next_character_loads_only_what_differs(
    both: tuple[Bundle, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    earlier: list[weakref.ref[object]] = []
    plain = onnxruntime.open_session

    def counted(path: Path, device: str, threads: int | None) -> object:
        opened.append(path.name)
        assert sum(part() is not None for part in earlier) == (3 if earlier else 0), "what differs must have left first"
        return plain(path, device, threads)

    monkeypatch.setattr(onnxruntime, "open_session", counted)
    qiqi, ponyo = both
    loaded: PartCache = {}
    onnxruntime.load(qiqi, EngineConfig(threads=1), loaded)
    assert len(opened) == len(loaded) == 5
    opened.clear()
    earlier += [weakref.ref(part) for part in loaded.values()]
    engines = onnxruntime.load(ponyo, EngineConfig(threads=1), loaded)
    assert sorted(opened) == ["denoiser.onnx", "encoder.onnx"] and len(loaded) == 5
    earlier.clear()
    alone = onnxruntime.load(ponyo, EngineConfig(threads=1))
    np.testing.assert_array_equal(clip(ponyo, engines), clip(ponyo, alone))
    assert clip(qiqi, onnxruntime.load(qiqi, EngineConfig(threads=1), loaded)).shape == (17, 32, 48, 3)
