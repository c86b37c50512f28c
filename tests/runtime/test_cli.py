"""The command: help, errors as one line, other packages, bundles explained, Tab, stray files of Python."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

import animegamer_rt.bundle.loader
import animegamer_rt.cli
import fakes
from animegamer_rt import __version__
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.cli import HELP, OWN, main


def add_command(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("extra", value, animegamer_rt.cli.COMMAND_GROUP)
    monkeypatch.setattr(animegamer_rt.cli, "entry_points", lambda group: [point])


def add_echo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("folder")
    parser.set_defaults(run=lambda options: print("got", options.folder, options.fast) or 5)


def test_another_packages_command_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "extra_commands", sys.modules[__name__])
    add_command(monkeypatch, "extra_commands:add_echo")
    assert main(["extra", "DIR", "--fast"]) == 5
    assert capsys.readouterr().out == "got DIR True\n"


VERBS = {
    "play": "--history-turns",
    "bench run": "--suite",
    "bench serve": "[--turns TURNS]",
    "bench compare": "RECORD RECORD",
    "selftest": "--out",
    "doctor": "--json",
    "info": "--list",
    "serve": "--print-config",
    "keys new": "--keys",
    "kiosk watch": "--config",
    "build-engines": "--gpu",
    "distill": "--student-steps",
    "export": "--checkpoints",
    "fetch": "--accept-licence",
    "parity": "DIR",
    "quantize": "--calibration-turns",
    "search-plans": "--dry-run",
    "shots decode": "--out",
    "shots write": "--instructions",
    "shots compare": "mllm-output.pt",
    "verify": "--against",
}
"""Every command and verb, with an option or word of its own."""


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_shows_its_own_options_only(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(*verb.split(), "--help") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: animegamer-rt {verb} ") and VERBS[verb] in shown
    group = [other for other in VERBS if other != verb and other.split()[0] == verb.split()[0]]
    assert not [VERBS[other] for other in group if VERBS[other].startswith("--") and f"  {VERBS[other]} " in shown]


def test_every_command_has_a_line_of_help_and_is_tried_here(capsys: pytest.CaptureFixture[str]) -> None:
    installed = {point.name for point in entry_points(group=animegamer_rt.cli.COMMAND_GROUP)}
    assert {verb.split()[0] for verb in VERBS} == HELP.keys() == installed | OWN.keys()
    assert main([]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f" {command} {words}" in shown for command, words in HELP.items())


TYPED = {
    # By strangers: options of another verb, slips, options before and after the words.
    "bench": "bench: error: the following arguments are required: {run,serve,compare}",
    "bench serve --suite 1": "bench serve: error: unrecognized arguments: --suite 1",
    "bench compare a.json": "bench compare: error: the following arguments are required: RECORD",
    "bench compare no.json no.json": "no.json: the record cannot be read",
    "bench run --suite 1 --turns 3": "a suite has its own turns",
    "bench run --suite 9": "no such suite; found 9; expected 1",
    "exrta": "invalid choice: 'exrta' (choose from 'play',",
    "play --plan balance": "expected one of exact, balanced, fast, turbo; did you mean 'balanced'?",
    "play --bundle no-such-bundle": "no bundle 'no-such-bundle'",
    "play --instructions no-such-file": "no-such-file: the instructions cannot be read",
    "play --sed 3": "play: error: unrecognized arguments: --sed 3; did you mean '--seed'?",
    "serve --ahead 17": "error: --ahead: out of range; found 17; expected 0 to 16",
    "serve --config no.toml": "error: no.toml: not a readable TOML file; found no such file or directory;",
    "serve --device onnxruntime": "error: unknown device; found 'onnxruntime'; expected cpu,",
    "info --json --list": "argument --list: not allowed with argument --json",
    "keys": "keys: error: the following arguments are required: {new}",
    "export --out x": "one of the arguments --checkpoints --random-weights is required",
}


@pytest.mark.parametrize("line", TYPED)
def test_a_wrong_line_is_refused_in_words(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed(*line.split()) == 2
    assert TYPED[line] in capsys.readouterr().err.splitlines()[-1]


def typed(*words: str) -> int | str | None:
    """The exit code of a line, whether the parser or the command said it."""
    try:
        return main(list(words))
    except SystemExit as stopped:
        return stopped.code


def test_new_keys_print_who_gets_which_file_and_are_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server, mia = ("server", "every player", "keep on the server"), ("mia", "--authorized-keys folder", "mia only")
    for name, public, secret in (server, mia):
        assert main(["keys", "new", name, "--keys", str(tmp_path / "keys")]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first.startswith(str(tmp_path / "keys" / f"{name}.key: ")) and public in first
        assert second.startswith(str(tmp_path / "keys" / f"{name}.key_secret: ")) and secret in second
    assert (tmp_path / "keys" / "mia.key_secret").stat().st_mode & 0o077 == 0, "the owner's alone"
    (tmp_path / "file").touch()
    assert main(["keys", "new", "bo", "--keys", str(tmp_path / "file")]) == 2
    assert "cannot be written" in (said := capsys.readouterr().err) and "--keys" in said


def test_a_closed_pipe_ends_the_command_quietly(folder: Path) -> None:
    command = [sys.executable, "-m", "animegamer_rt", "info", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.communicate()[1] == ""
    assert process.returncode == 1


def add_what_is_missing(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=lambda options: __import__("no_such_package"))


@pytest.mark.parametrize("command", ["no_such_package.parity:main", f"{__name__}:add_what_is_missing"])
def test_command_whose_library_is_missing_says_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command(monkeypatch, command)
    assert main(["extra"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: a library needed by the command 'extra' is missing")
    assert "pip install -e '.[cpu,export]'" in error


def test_module_and_script_are_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "animegamer_rt", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"animegamer-rt {__version__}"
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert 'animegamer-rt = "animegamer_rt.__main__:main"' in project.read_text(encoding="utf-8")


def test_a_game_plays_and_commands_help_where_only_cpu_is_installed(folder: Path, tmp_path: Path) -> None:
    code = """
import sys

extras = "cv2 huggingface_hub onnx onnxscript ray safetensors starlette torch uvicorn websockets"
sys.modules.update(dict.fromkeys(extras.split()))  # their import fails
from animegamer_rt.cli import HELP, OWN, main

for command in ("play", "serve", "kiosk", "bench", "doctor", "info"):
    try:
        main([command, "--help"])
    except SystemExit as end:
        assert end.code == 0, command
sys.exit(main(["play", "--bundle", sys.argv[1], "--instructions", sys.argv[2], "--out", sys.argv[3]]))
"""
    story = tmp_path / "story.txt"
    story.write_text("Mia waves.\n", encoding="utf-8")
    command = [sys.executable, "-c", code, str(folder), str(story), str(tmp_path / "game")]
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


def test_bundle_is_explained_to_people_and_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(folder)]) == 0
    shown = capsys.readouterr().out
    for word in ("random weights", "17 frames of 24 x 16 pixels", "denoiser", "balanced (default)", "40", "Mia, Tobo"):
        assert word in shown
    assert main(["info", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["folder"]) == ("tiny", str(folder))


def test_square_brackets_are_shown_and_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(tmp_path / "[old]"))
    written = fakes.write_bundle(tmp_path / "[old]" / "[red]")
    write_manifest(written.folder, replace(written.manifest, description="a [/b]undle"))
    shows = {str(written.folder): ["[old]/[red]", "a[/b]undle"], "--list": ["[red]"]}
    for option, words in shows.items():
        assert main(["info", option]) == 0
        shown = "".join(capsys.readouterr().out.split())
        assert all(word in shown for word in words)


NAMES = ("types", "random", "runpy", "json", "numpy", "zmq", "animegamer_rt", "animegamer_export", "sitecustomize")


@pytest.fixture
def stray(tmp_path: Path) -> Path:
    """A folder of modules that leave a file when they are run."""
    folder = tmp_path / "stray"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'a').write({name!r} + ' ')\n")
    return folder


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """`animegamer-rt` as it is installed: a script in another folder."""
    script = tmp_path / "bin" / "animegamer-rt"
    script.parent.mkdir()
    script.write_text("import sys\nfrom animegamer_rt.__main__ import main\nsys.exit(main())\n")
    return [sys.executable, str(script)]


def ran(tmp_path: Path) -> str:
    return (tmp_path / "RAN").read_text() if (tmp_path / "RAN").exists() else ""


def test_bench_runs_none(command: list[str], folder: Path, stray: Path, tmp_path: Path) -> None:
    options = ["bench", "run", "--bundle", str(folder), "--turns", "1", "--results", str(tmp_path / "results")]
    done = subprocess.run([*command, *options], cwd=stray, capture_output=True, text=True)
    assert (done.returncode, done.stderr, ran(tmp_path)) == (0, "", "")


def test_serve_and_its_worker_run_none(command: list[str], folder: Path, stray: Path, tmp_path: Path) -> None:
    options = ["serve", "--bundle", str(folder), "--state-dir", str(tmp_path / "state"), "--port", "0"]
    process = subprocess.Popen(
        [*command, *options, "--device", "simulated:0"], cwd=stray, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
    finally:
        process.terminate()
        process.communicate()
    assert said.startswith(b'{"address"') and ran(tmp_path) == ""
