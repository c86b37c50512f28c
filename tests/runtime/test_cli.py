"""The command: help, errors as one line, subcommands of other packages, a bundle explained, a machine measured."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

import animegamer_rt.bench.command
import animegamer_rt.bundle.loader
import animegamer_rt.cli
import fakes
from animegamer_rt import __version__
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.cli import main
from animegamer_rt.errors import BundleFileError
from animegamer_rt.failures import report


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


def test_command_of_another_package_gets_its_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "extra_commands", sys.modules[__name__])
    add_command(monkeypatch, "extra_commands:echo")
    assert main(["extra", "DIR", "--fast"]) == 5
    assert capsys.readouterr().out == "got DIR --fast\n"
    main([])
    assert "further commands, each with its own --help:\n  extra\n" in capsys.readouterr().out


def test_each_command_of_the_export_is_explained_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    installed = {point.name for point in entry_points(group=animegamer_rt.cli.COMMAND_GROUP)}
    assert set(animegamer_rt.cli.ADDED) == installed
    main([])
    listed = capsys.readouterr().out
    for command, words in animegamer_rt.cli.ADDED.items():
        assert f"\n  {command:<14}{words}\n" in listed
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: animegamer-rt {command} ")


def test_a_slip_in_a_commands_name_lists_those_of_other_packages_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command(monkeypatch, "extra_commands:echo")
    with pytest.raises(SystemExit) as stopped:
        main(["exrta"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "'exrta'" in error and "extra" in error.partition("choose from")[2]


def test_an_unknown_option_shows_those_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["play", "--sed", "3"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "play: error: unrecognized arguments: --sed 3" in said and "[--seed SEED]" in said


def test_new_keys_print_which_file_goes_to_the_server_and_which_to_the_player(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, public, secret in (("server", "every player", "stays"), ("mia", "--authorized-keys folder", "mia alone")):
        assert main(["keys", "new", name, "--keys", str(tmp_path / "keys")]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first.startswith(str(tmp_path / "keys" / f"{name}.key: ")) and public in first
        assert second.startswith(str(tmp_path / "keys" / f"{name}.key_secret: ")) and secret in second
    (tmp_path / "file").touch()
    assert main(["keys", "new", "bo", "--keys", str(tmp_path / "file")]) == 2
    assert "cannot be written" in (said := capsys.readouterr().err) and "--keys" in said


def test_a_closed_pipe_ends_the_command_quietly(bundle: str) -> None:
    command = [sys.executable, "-m", "animegamer_rt", "info", bundle]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.communicate()[1] == ""
    assert process.returncode == 1


def test_output_that_cannot_be_written_is_one_line(bundle: str) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "animegamer_rt", "doctor", "--bundle", bundle]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    why = "no space left on device; free some space, or redirect it elsewhere"
    assert done.stderr == f"error: the output cannot be written; found {why}\n"
    assert done.returncode == 2


def import_what_is_missing(_: list[str]) -> int:
    return len(__import__("no_such_package").__name__)


@pytest.mark.parametrize("command", ["no_such_package.parity:main", f"{__name__}:import_what_is_missing"])
def test_command_whose_library_is_missing_says_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command(monkeypatch, command)
    assert main(["extra", "--help"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the command 'extra' lacks a library") and "pip install -e '.[cpu,export]'" in error


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
        animegamer_rt.bundle.loader.load(tmp_path / "tiny")


def test_a_user_without_a_home_folder_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as for a number that no user has, without HOME

    monkeypatch.setattr(Path, "home", home)
    assert main(["info", "hf:somebody/one@main"]) == 2
    assert capsys.readouterr().err.startswith("error: this user has no home folder; set HOME to a folder")


def test_module_and_script_are_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "animegamer_rt", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"animegamer-rt {__version__}"
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert 'animegamer-rt = "animegamer_rt.__main__:main"' in project.read_text(encoding="utf-8")


def test_a_game_plays_and_commands_help_where_only_cpu_is_installed(bundle: str, tmp_path: Path) -> None:
    code = """
import sys

extras = "bitsandbytes cv2 huggingface_hub onnx onnxscript ray safetensors starlette torch uvicorn websockets"
sys.modules.update(dict.fromkeys(extras.split()))  # their import fails
from animegamer_rt.cli import main

for command in ("play", "serve", "kiosk", "bench", "doctor", "info"):
    try:
        main([command, "--help"])
    except SystemExit as end:
        assert end.code == 0, command
sys.exit(main(["play", "--bundle", sys.argv[1], "--instructions", sys.argv[2], "--out", sys.argv[3]]))
"""
    story = tmp_path / "story.txt"
    story.write_text("Mia waves.\n", encoding="utf-8")
    command = [sys.executable, "-c", code, bundle, str(story), str(tmp_path / "game")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_while_the_command_is_imported_is_one_line() -> None:
    code = """
import runpy, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "animegamer_rt.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
runpy.run_module("animegamer_rt", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_an_interrupt_while_a_library_is_loaded_is_no_missing_library(capsys: pytest.CaptureFixture[str]) -> None:
    """As pybind11 says it, in which onnxruntime and others are written."""
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stop:
            raise ImportError("initialization failed") from stop
    except ImportError as error:
        assert report(error) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_bundle_is_explained(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", bundle]) == 0
    shown = capsys.readouterr().out
    for word in ("random weights", "17 frames of 24 x 16 pixels", "denoiser", "balanced (default)", "40", "Mia, Tobo"):
        assert word in shown


def test_square_brackets_are_shown_and_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(tmp_path / "[old]"))
    written = fakes.write_bundle(tmp_path / "[old]" / "[red]")
    write_manifest(written.folder, replace(written.manifest, description="a [/b]undle"))
    for options, words in (
        (["info", str(written.folder)], ["[old]/[red]", "a[/b]undle"]),
        (["info", "--list"], ["[red]"]),
    ):
        assert main(options) == 0
        shown = "".join(capsys.readouterr().out.split())
        assert all(word in shown for word in words)


def test_bundle_is_explained_to_programs(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", bundle, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["folder"]) == ("tiny", bundle)
