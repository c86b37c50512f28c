"""`animegamer-rt play`: lines of text and instruction files, what is written, what repeats, what is refused."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import av
import pytest
import tiny_reader

import animegamer_rt.play.command
import animegamer_rt.play.game_folder
import fakes
from animegamer_rt.bundle.manifest import World
from animegamer_rt.cli import main
from animegamer_rt.errors import BackendError, InstructionError
from animegamer_rt.play.instructions_file import example_script, read_script

LINES = ["Character: Mia; Motion: gently wave; Background: day town.", "Tobo runs to the forest.", "ミアは森へ走る"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "story.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def play(folder: Path, script: Path, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    command = ["play", "--bundle", str(folder), "--instructions", str(script), "--out", str(out), *options]
    code = main(command)
    return code, json.loads((out / "game.json").read_text(encoding="utf-8"))


def test_reader_says_what_was_understood_and_what_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, script = tiny_reader.add_reader(fakes.write_bundle(tmp_path / "tiny")).folder, tmp_path / "story.txt"
    script.write_text("Mia waves wildly in a raincoat\nshe explodes, and it is night\nhello\nTobo runs\nundo\n")
    code, game = play(folder, script, tmp_path / "out", "--seed", "7")
    assert code == 0
    assert [turn["caption"] for turn in game["turns"]] == [
        "Character: Mia in a raincoat on the left; Motion: wildly wave; Background: day town.",
        "Character: Mia in a raincoat on the left; Motion: wildly wave; Background: night town.",
    ]
    said = capsys.readouterr().out
    assert "understood: Mia in a raincoat waves wildly, town, day" in said
    assert 'understood: it is night\n  not understood: "explodes"\n' in said
    assert "\n  nothing understood; tiny reads" in said and "turn 3 is taken back" in said
    assert not (tmp_path / "out" / "turn-003.mp4").exists()


def test_every_turn_is_a_clip_a_row_and_a_record(folder: Path, script: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".DS_Store").touch()
    code, game = play(folder, script, tmp_path / "out", "--seed", "7")
    assert code == 0
    assert (game["bundle"], game["plan"], game["seed"]) == ("tiny", "balanced", 7)
    assert [turn["instruction"] for turn in game["turns"]] == LINES
    assert [turn["turn"] for turn in game["turns"]] == [1, 2, 3]
    for turn in game["turns"]:
        assert (turn["frames"], turn["height"], turn["width"], turn["fps"], turn["noise_version"]) == (17, 16, 24, 8, 2)
        assert set(turn["seconds"]) == {"predictor", "denoiser", "vae", "total"}
        assert set(turn["state"]) == {"motion_level", "social", "entertainment", "stamina"}
        assert set(turn["character"]) == {"social", "entertainment", "stamina"} and len(turn["frames_sha256"]) == 64
        with av.open(str(tmp_path / "out" / f"turn-{turn['turn']:03d}.mp4")) as clip:
            assert len(list(clip.decode(video=0))) == 17
    with av.open(str(tmp_path / "out" / "contact-sheet.png")) as sheet:
        assert next(sheet.decode(video=0)).height == 3 * 16 + 2 * 4


def test_options_reach_the_game(folder: Path, script: Path, tmp_path: Path) -> None:
    options = ["--plan", "exact", "--fps", "12", "--history-turns", "0", "--scale", "2"]
    _, game = play(folder, script, tmp_path / "out", *options)
    assert game["plan"] == "exact"
    assert {turn["fps"] for turn in game["turns"]} == {12}
    assert 0 <= game["seed"] < 2**31
    with av.open(str(tmp_path / "out" / "turn-001.mp4")) as clip:
        stream = clip.streams.video[0]
        assert (float(stream.average_rate), stream.height, stream.width) == (12, 32, 48)


def test_without_terminal_or_file_the_bundles_example_is_played(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "animegamer_rt", "play", "--bundle", str(folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, cwd=tmp_path, capture_output=True, text=True, check=True)
    game = json.loads((tmp_path / "games" / "game-001" / "game.json").read_text())
    assert [turn["instruction"] for turn in game["turns"]] == list(fakes.WORLD.examples)
    for name in ("game.json", "contact-sheet.png", "turn-002.mp4"):
        assert str(Path("games") / "game-001" / name) in done.stdout
    assert "\x1b" not in done.stdout


def closed(stream: int, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`animegamer-rt play` by a program that has closed one of its streams."""
    line = [sys.executable, "-m", "animegamer_rt", "play", *command]
    shell = ["sh", "-c", f'exec "$0" "$@" {stream}>&-', *line]
    return subprocess.run(shell, stdin=subprocess.DEVNULL, cwd=cwd, capture_output=True, text=True)


def test_a_closed_stream_holds_nothing_and_stops_nothing(folder: Path, script: Path, tmp_path: Path) -> None:
    done = closed(0, "--bundle", str(folder), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "games" / "game-001" / "game.json").read_text())["turns"]
    done = closed(0, "--bundle", str(folder), "--instructions", "-", cwd=tmp_path)
    assert done.returncode == 2 and "standard input: there are no instructions" in done.stderr
    done = closed(1, "--bundle", str(folder), "--instructions", str(script), "--out", "mute", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads((tmp_path / "mute" / "game.json").read_text())["turns"]) == len(LINES)


def test_a_game_that_cannot_begin_leaves_the_one_in_its_folder_and_no_empty_one(
    folder: Path, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, before = play(folder, script, tmp_path / "out")

    def refuse(*_: object) -> None:
        raise BackendError("this onnxruntime has no CUDAExecutionProvider")

    monkeypatch.setattr(animegamer_rt.play.command, "open_engines", refuse)
    assert play(folder, script, tmp_path / "out") == (2, before)
    assert "no CUDAExecutionProvider" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"turn-001.mp4", "turn-003.mp4", "contact-sheet.png"}
    monkeypatch.chdir(tmp_path)
    assert main(["play", "--bundle", str(folder), "--instructions", str(script)]) == 2
    assert not list((tmp_path / "games").iterdir())


def test_disk_that_fills_up_keeps_finished_turns(
    folder: Path, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    free = iter([10**9, 10**9, 1000])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, next(free)))
    code, game = play(folder, script, tmp_path / "out")
    assert code == 2
    assert [turn["turn"] for turn in game["turns"]] == [1, 2]
    assert "not enough space on the disk" in capsys.readouterr().err


def test_clip_that_cannot_be_written_is_an_error_that_names_it(folder: Path, script: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys; from animegamer_rt.cli import main; import animegamer_rt.play.command;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500)); sys.exit(main(sys.argv[1:]))"
    )
    out = tmp_path / "out"
    options = ["play", "--bundle", str(folder), "--instructions", str(script), "--out", str(out)]
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "turn-001.mp4: cannot be written; found file too large" in done.stderr
    assert json.loads((out / "game.json").read_text())["turns"] == []
    assert [path.name for path in out.iterdir()] == ["game.json"]


def written(folder: Path, content: str | bytes) -> str:
    path = folder / "story.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_is_a_turn_and_blanks_and_comments_are_not(tmp_path: Path, encoding: str) -> None:
    text = "# a day\r\nMia waves.\r\n\r\n   \n  Mia sleeps.  \rMia runs.\u2028# end\n"
    source = written(tmp_path, "\ufeff" + text if encoding == "utf-8" else text.encode(encoding))
    assert read_script(source) == ["Mia waves.", "Mia sleeps.", "Mia runs."]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\n# only talk\n", "no instructions"),
        ("Mia waves.\n" + "x" * 10_000, "line 2: the instruction is too long"),
        ("Mia waves.\nMia \x07 rings.\n", "line 2: .*control character"),
        ("\u202eMia waves.\n", r"line 1: .*an invisible mark; found U\+202E.*type the words again"),
        (b"Mia waves.\nMia \xff waves.\n", "line 2: the instructions are not UTF-8"),
        ('{"turns": ["Mia waves."]}', "story.txt: not instructions"),
    ],
)
def test_bad_script_is_refused_with_its_line(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(InstructionError, match=said):
        read_script(written(tmp_path, content))


def test_bundle_without_examples_asks_for_instructions() -> None:
    with pytest.raises(InstructionError, match="--instructions FILE"):
        example_script(World())


# Ctrl-C in the middle of a turn: finished turns are kept, game.json is valid, the exit code says so.

SLOW_SECOND_TURN = """
import sys, time
sys.path.insert(0, sys.argv.pop(1))
import animegamer_rt.play.command, fakes

class Slow(fakes.FakeDenoiser):
    def start(self, *args):
        if self.motion_scopes:
            time.sleep(60)
        return super().start(*args)

animegamer_rt.play.command.open_engines = lambda *_: fakes.fake_engines(denoiser=Slow())
from animegamer_rt.cli import main
sys.exit(main(sys.argv[1:]))
"""


def turns(out: Path) -> list[str]:
    return [turn["instruction"] for turn in json.loads((out / "game.json").read_text(encoding="utf-8"))["turns"]]


def test_signal_to_a_running_process_ends_it_at_once_and_cleanly(folder: Path, script: Path, tmp_path: Path) -> None:
    out, place = tmp_path / "out", str(Path(fakes.__file__).parent)
    options = ["play", "--bundle", str(folder), "--instructions", str(script), "--out", str(out)]
    command = [sys.executable, "-c", SLOW_SECOND_TURN, place, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not (out / "turn-001.mp4").exists() or not turns(out):
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "Traceback" not in error
    assert "1 turn: clips and game.json in" in said and turns(out) == LINES[:1]


def test_interrupt_while_a_finished_turn_is_written_waits_for_it(
    folder: Path, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_clip = animegamer_rt.play.game_folder.write_clip

    def interrupted(*args: Any, **named: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        write_clip(*args, **named)

    monkeypatch.setattr(animegamer_rt.play.game_folder, "write_clip", interrupted)
    code, game = play(folder, script, tmp_path / "out")
    assert code == 130 and [turn["instruction"] for turn in game["turns"]] == LINES[:1]
    assert "turn-001.mp4" in capfd.readouterr().out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
