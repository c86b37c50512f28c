"""Claims about quantised bundles and their comparison, on the shipped bundle; what lies in a bundle's place is kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from project import ROOT, with_newer_onnxruntime
from watching import Watching

from animegamer_export.quantize import command
from animegamer_export.quantize.bundle import quantize_bundle
from animegamer_export.quantize.command import parse_precisions
from animegamer_export.quantize.scheme import scheme
from animegamer_export.support.new_bundle import MARK, MARKED
from animegamer_export.verify.bundles import SampleCounts, compare
from animegamer_rt import cli
from animegamer_rt.bundle.loader import Bundle, load, open_bundle
from animegamer_rt.cli import main
from animegamer_rt.errors import BundleError, ConfigError, OutputError

FEW = SampleCounts(instructions=2, turns=1, plan="fast")


@pytest.fixture(scope="module")
def pocket() -> Bundle:
    return open_bundle(ROOT / "engines" / "pocket")


@pytest.fixture(scope="module")
def small(pocket: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("bundles") / "small"
    quantize_bundle(pocket, out, {"predictor": scheme("int4-qdq"), "denoiser": scheme("w8a8")}, calibration_turns=1)
    return load(out)


def test_only_the_named_parts_and_the_figures_change(pocket: Bundle, small: Bundle) -> None:
    changed = {name for name, record in small.manifest.files.items() if record != pocket.manifest.files.get(name)}
    assert changed == {"predictor.onnx", "predictor.weights", "denoiser.onnx", "denoiser.weights"}
    assert small.manifest.parts["predictor"].precision == "int4-qdq"
    assert small.manifest.parts["denoiser"].int8_file == ""  # it was of the weights before
    assert small.manifest.parts["vae_first"] == pocket.manifest.parts["vae_first"]
    assert small.manifest.provenance["quantized_from"] == pocket.fingerprint
    # The original's figures are not shown as its own.
    assert pocket.manifest.quality and any(entry.fidelity for entry in pocket.manifest.plans.values())
    assert not small.manifest.quality and not any(entry.fidelity for entry in small.manifest.plans.values())
    assert small.default_plan == "exact" and small.unmeasured_plans == ["balanced", "fast", "turbo"]
    assert {name: entry.plan for name, entry in small.manifest.plans.items()} == {
        name: entry.plan for name, entry in pocket.manifest.plans.items()
    }


@with_newer_onnxruntime
def test_comparison_finds_what_differs_and_how_much(pocket: Bundle, small: Bundle) -> None:
    figures = compare(small, pocket, FEW)
    assert figures.keys() == {"predictor", "denoiser"}
    predictor, denoiser = figures["predictor"], figures["denoiser"]
    assert 0 < predictor["shot_relative_error"] <= predictor["shot_relative_error_max"] < 0.5
    assert predictor["strengths_equal"] >= 4 * predictor["four_strengths_equal"]
    assert predictor["bytes"] < 0.6 * predictor["bytes_before"]
    assert 0 < denoiser["step_relative_error"] < 0.2
    assert denoiser["frames_psnr_db"] > 15


INT4 = {"predictor": scheme("int4-qdq")}


class Stops(Watching):
    """Ends the work at the third tensor of the predictor."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    @contextmanager
    def step(self, name: str, size: int) -> Iterator[Callable[[int], None]]:
        with super().step(name, size) as advance:

            def stop(count: int) -> None:
                advance(count)
                if len(self.told.get("predictor", ())) == 3:
                    raise self.error

            yield stop


def test_ctrl_c_leaves_nothing_and_the_next_run_makes_the_bundle(
    pocket: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "Progress", lambda console: Stops(KeyboardInterrupt()))
    arguments = ["quantize", str(pocket.folder), "--precision", "predictor=int4-qdq", "--out", str(tmp_path / "new")]
    assert cli.main(arguments) == 130
    assert "stopped" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    # As a run that was killed leaves it.
    (tmp_path / ".new.unfinished").mkdir()
    (tmp_path / ".new.unfinished" / MARK).write_bytes(MARKED)
    (tmp_path / ".new.unfinished" / "predictor.onnx").write_bytes(b"half")
    watching = Watching()
    quantize_bundle(pocket, tmp_path / "new", INT4, step=watching.step)
    assert load(tmp_path / "new").manifest.parts["predictor"].precision == "int4-qdq"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert watching.steps == ["what stays", "predictor", "files hashed"]
    assert len(watching.told["predictor"]) > 10
    weights = (tmp_path / "new" / "predictor.weights").stat().st_size
    assert weights <= watching.sizes["predictor"] < 1.2 * weights
    assert sum(watching.told["predictor"]) > 0.99 * weights


def test_a_disk_that_fills_up_is_told_and_nothing_is_left(pocket: Bundle, tmp_path: Path) -> None:
    full = Stops(OSError(errno.ENOSPC, "No space left on device"))
    (tmp_path / "new").mkdir()
    with pytest.raises(OutputError, match=r"new: the disk is full; free some space and run it again$"):
        quantize_bundle(pocket, tmp_path / "new", INT4, step=full.step)
    assert list(tmp_path.rglob("*")) == [tmp_path / "new"]


def test_parts_that_cannot_be_quantised_leave_no_bundle(pocket: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="vae has no weight to quantise"):
        quantize_bundle(pocket, tmp_path / "new", {"vae": scheme("int4-qdq")})
    with pytest.raises(ConfigError, match="no part 'denoisr'.*denoiser"):
        quantize_bundle(pocket, tmp_path / "new", {"denoisr": scheme("int8-qdq")})
    assert list(tmp_path.iterdir()) == []


def test_precisions_that_make_no_sense_are_refused() -> None:
    for text in ("nf4", "predictor=nf4,predictor=int8-qdq", "predictor=nf5"):
        with pytest.raises(ConfigError):
            parse_precisions(text)


COMMANDS = (
    ("export", "--random-weights", "1", "--size", "tiny"),
    ("quantize", "pocket", "--precision", "predictor=int8-qdq"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("folder", ["new", ".new.unfinished"])
def test_a_bundle_is_not_written_among_files_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], folder: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "mine.txt").write_text("mine")
    assert main([*command, "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(tmp_path / folder) in said
    assert [path.name for path in tmp_path.rglob("*")] == [folder, "mine.txt"]
    assert (tmp_path / folder / "mine.txt").read_text() == "mine"


def test_a_bundle_is_written_to_the_empty_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "new").symlink_to("disk")
    assert main([*COMMANDS[1], "--out", str(tmp_path / "new")]) == 0
    assert load(tmp_path / "disk").manifest.parts["predictor"].precision == "int8-qdq"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "new"]
    assert (tmp_path / "new").is_symlink()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_mounted_disk_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "new")
    assert main([*command, "--out", str(tmp_path / "new")]) == 2
    assert f"write to {tmp_path / 'new' / 'bundle'}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
