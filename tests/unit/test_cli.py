"""The command: help, errors as one line, subcommands of other packages, a bundle explained, a machine measured."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import animegamer_rt.bundle
import animegamer_rt.cli
import fakes
from animegamer_rt import __version__
from animegamer_rt.bench import summary
from animegamer_rt.cli import main
from animegamer_rt.errors import BundleFileError
from animegamer_rt.events import StageSeconds


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny").folder)


def add_command(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("extra", value, animegamer_rt.cli.COMMAND_GROUP)
    monkeypatch.setattr(animegamer_rt.cli, "entry_points", lambda group: [point])


def echo(arguments: list[str]) -> int:
    print("got", *arguments)
    return 5


def test_no_command_and_help_show_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"    {command} " in shown for command in ("play", "bench", "info"))


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_command_of_another_package_gets_its_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "extra_commands", sys.modules[__name__])
    add_command(monkeypatch, "extra_commands:echo")
    assert main(["extra", "DIR", "--fast"]) == 5
    assert capsys.readouterr().out == "got DIR --fast\n"
    main([])
    assert "further commands, with help of their own: extra" in capsys.readouterr().out


def test_command_whose_library_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command(monkeypatch, "no_such_package.parity:main")
    assert main(["extra"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the command 'extra' lacks a library") and "animegamer-rt[export]" in error


def test_damaged_bundle_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = fakes.write_bundle(tmp_path / "tiny").part_path("denoiser")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    for command in (["info", str(tmp_path / "tiny")], ["play", "--bundle", str(tmp_path / "tiny")]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and "denoiser.onnx" in error and error.count("\n") == 1
    with pytest.raises(BundleFileError):
        animegamer_rt.bundle.load(tmp_path / "tiny")


def test_module_and_script_are_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "animegamer_rt", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"animegamer-rt {__version__}"


def test_bundle_is_explained(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", bundle]) == 0
    shown = capsys.readouterr().out
    for word in ("random weights", "17 frames of 24 x 16", "denoiser", "balanced (default)", "40", "Mia, Tobo"):
        assert word in shown


def test_bundle_is_explained_to_programs(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", bundle, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["folder"]) == ("tiny", bundle)


def test_bundles_are_listed(monkeypatch: pytest.MonkeyPatch, bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(Path(bundle).parent))
    assert main(["info", "--list"]) == 0
    assert "tiny" in capsys.readouterr().out


def test_machine_is_measured(bundle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results"
    assert main(["bench", "--bundle", bundle, "--plan", "exact", "--turns", "3", "--results", str(results)]) == 0
    (path,) = results.glob("*.json")
    record = json.loads(path.read_text())
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == record
    assert (record["size"], record["plan"], record["n"], record["peer"]) == ("tiny", "exact", 3, None)
    assert set(record["stages"]) == {"predictor", "denoiser", "vae"}
    assert record["seconds_per_turn_p95"] >= record["seconds_per_turn_p50"] > 0
    assert record["memory_peak_mib"] > 20 and record["first_prompt_seconds"] > 0
    assert record["machine"] and record["commit"] and record["date"].endswith("+00:00")
    assert (results / "turn.svg").read_text().startswith("<svg")


def test_percentiles_are_of_the_turns() -> None:
    turns = [StageSeconds(0.1 * n, 1.0 * n, 0.2 * n, 1.3 * n) for n in range(1, 12)]
    figures = summary(turns)
    assert figures["seconds_per_turn_p50"] == pytest.approx(1.3 * 6)
    assert figures["stages"]["denoiser"] == pytest.approx({"p50": 6.0, "p95": 10.5})


def test_results_that_cannot_be_written_are_said_before_measuring(
    bundle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["bench", "--bundle", bundle, "--results", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err
