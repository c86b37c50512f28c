"""`animegamer-rt play --image start.png --motion ..`: the game continues from the picture, or says why it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_towers import add_towers

import fakes
from animegamer_rt.cli import main
from animegamer_rt.video import write_png

LINES = "Mia waves.\nTobo runs.\nMia flies.\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return add_towers(fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny")).folder


@pytest.fixture
def image(tmp_path: Path) -> Path:
    write_png(tmp_path / "start.png", np.full((20, 30, 3), 200, np.uint8))
    return tmp_path / "start.png"


def play(bundle: Path, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    (out.parent / "story.txt").write_text(LINES)
    common = ["--bundle", str(bundle), "--seed", "7", "--instructions", str(out.parent / "story.txt")]
    code = main(["play", *common, "--out", str(out), *options])
    return code, json.loads((out / "game.json").read_text()) if (out / "game.json").exists() else {}


def hashes(game: dict[str, Any]) -> list[str]:
    return [turn["frames_sha256"] for turn in game["turns"]]


def test_turns_continue_from_the_picture_which_is_no_turn_itself(bundle: Path, image: Path, tmp_path: Path) -> None:
    options = ["--image", str(image), "--motion", "gently wave"]
    code, begun = play(bundle, tmp_path / "begun", *options)
    assert code == 0 and [turn["turn"] for turn in begun["turns"]] == [1, 2, 3]
    assert begun["start"] == {"image": "start.png", "caption": "Motion: gently wave."}
    _, again = play(bundle, tmp_path / "again", *options)
    _, plain = play(bundle, tmp_path / "plain")
    _, other = play(bundle, tmp_path / "other", "--image", str(image), "--motion", "quickly run")
    assert "start" not in plain
    assert hashes(begun) == hashes(again)
    assert hashes(begun)[0] not in (hashes(plain)[0], hashes(other)[0])


def test_what_a_picture_shows_is_told_before_the_first_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "drawing.png"
    with Image.open(Path(__file__).parents[3] / "docs" / "game.gif") as turns:
        turns.convert("RGB").crop((0, 0, 432, 288)).save(drawing)  # without the text below the picture
    options = ["--plan", "turbo", "--threads", "1", "--image", str(drawing), "--motion", "gently wave"]
    code, _ = play(Path("pocket"), tmp_path / "out", *options)
    said = capsys.readouterr().out
    seen = "in the picture: Mirel in everyday clothes waves gently, forest, day"
    assert code == 0 and seen in said.partition("turn 1 >")[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--image", "IMAGE"], "--image needs --motion too"),
        (["--image", "none.png", "--motion", "gently wave"], "none.png: no such picture"),
        (["--image", "IMAGE", "--motion", "gently wave", "--history-turns", "0"], "no turn would see the picture"),
    ],
)
def test_what_cannot_start_is_one_line_and_leaves_no_folder(
    bundle: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    code, _ = play(bundle, tmp_path / "out", *(str(image) if option == "IMAGE" else option for option in options))
    error = capsys.readouterr().err
    assert code == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert said in error
    assert not (tmp_path / "out").exists()
