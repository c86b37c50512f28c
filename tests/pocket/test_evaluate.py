"""`python -m animegamer_pocket.evaluate`: games with labels are played, read and counted."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from animegamer_pocket.evaluate import PlayedTurn, fields_right, main, report, worst
from animegamer_pocket.evaluation import looks
from animegamer_pocket.judge.reading import Reading
from animegamer_pocket.labelled import LabelledTurn, read_games
from animegamer_pocket.language.games import json_lines
from animegamer_pocket.world.render import render
from animegamer_pocket.world.scene import CHARACTERS, Scene

SHARES = {"who", "motion", "place", "night", "outfits", "level_within_one", "one_of_each"}
SUMS = {"all_right", "all_right_first", "all_right_later", "edges", "flicker", "join"}
FIRST = {"game": 1, "turn": 1, "say": "Tofi waves gently in the meadow.", "who": ["Tofi"], "motion": "wave"}
LATER = {"game": 1, "turn": 2, "say": "Now run!", "who": ["Tofi"], "place": "meadow", "voice": "a child"}
ASKED = LabelledTurn(1, 1, "Mirel and Tofi wave", ("Mirel", "Tofi"), "wave", "beach", True, ("party", "everyday"), 4)


def seen(**counts: int) -> Reading:
    """A reading that has all that ASKED asks for, but these people, Mirel in party clothes."""
    outfits = {name: "party" if name == "Mirel" else "everyday" for name in counts}
    everybody = {name: counts.get(name, 0) for name in CHARACTERS}
    return Reading(everybody, False, "beach", True, "wave", 3, outfits, {})


def played(reading: Reading | None, first: bool = True) -> PlayedTurn:
    return PlayedTurn(ASKED, first, 1, reading, fields_right(ASKED, reading))


def write(folder: Path, *lines: dict[str, Any] | str) -> Path:
    path = folder / "games.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_two_turns_are_played_and_every_reading_is_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games, out = write(tmp_path, FIRST, LATER), tmp_path / "report.json"
    arguments = ["--games", str(games), "--plan", "fast", "--seeds", "7", "--out", str(out)]
    assert main([*arguments, "--worst", "1"]) == 0
    found = json.loads(out.read_text())
    assert {"turns", "readings", *SHARES, *SUMS} <= set(found) and found["turns"] == 2
    assert found["who"] == found["motion"] == found["place"] == found["all_right_first"] == 1.0
    assert found["night"] is None and found["outfits"] is None and found["level_within_one"] is None
    first, later = found["readings"]
    assert first["say"] == FIRST["say"] and first["asked"] == {"who": ["Tofi"], "motion": "wave"}
    assert first["read"]["counts"]["Tofi"] == 1 and first["right"]["who"] and first["seed"] == 7
    assert set(later["right"]) == {"who", "place", "one_of_each"}
    said = capsys.readouterr().out
    assert "2 of 2 turns" in said and "night              not judged" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"line 2: invalid turn"),
        ({**LATER, "who": ["Toffi"]}, r'line 2: .*found "who": \["Toffi"\], not distinct names of Mirel'),
        ({**LATER, "motion": "hop"}, r'line 2: .*found "motion": "hop", not one of walk'),
        ({**LATER, "outfits": ["party", "party"]}, r'line 2: .*per name in "who"'),
        ({**LATER, "turn": 1}, r"line 2: .*found turn 1 of game 1 appears twice"),
    ],
)
def test_a_wrong_line_is_one_sentence_with_its_number(
    tmp_path: Path, line: dict[str, Any] | str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--games", str(write(tmp_path, FIRST, line)), "--out", str(tmp_path / "out.json")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and re.search(said, error), error


def test_the_development_set_reads_as_whole_games_and_no_training_sentence_is_in_it() -> None:
    games = read_games(Path("benchmarks/language/development.jsonl"))
    assert len(games) >= 40 and sum(len(turns) for turns in games) >= 200
    assert all([turn.turn for turn in turns] == list(range(1, len(turns) + 1)) for turns in games)
    # Below that many characters many people say the same: "night", "Pick up the pace.".
    asked = {turn.say.lower() for turns in games for turn in turns if len(turn.say) >= 24}
    assert not asked & {str(line["say"]).lower() for line in json_lines(1000, 5)}


def test_exactly_the_people_asked_for_once_each_are_right() -> None:
    both, three_foxes = played(seen(Mirel=1, Tofi=1)), played(seen(Mirel=1, Tofi=2))
    smeared = played(dataclasses.replace(seen(Mirel=1, Tofi=1), smeared=True))
    stranger, refused = played(seen(Mirel=1, Tofi=1, Bixo=1)), played(None)
    assert both.all_right and both.wrong == []
    assert three_foxes.wrong == ["who", "one_of_each"] and not three_foxes.all_right
    assert smeared.wrong == ["one_of_each"] and not smeared.all_right
    assert stranger.wrong == ["who"] and not stranger.all_right
    assert played(seen(Mirel=1)).wrong == ["who", "outfits"], "who is lost is not dressed right"
    assert set(refused.wrong) == SHARES
    assert worst([both, three_foxes, refused], 2) == [refused, three_foxes]
    later = PlayedTurn(ASKED, False, 1, both.reading, both.right)
    found = report([both, three_foxes, later])
    assert (found["all_right"], found["all_right_first"], found["all_right_later"]) == (0.6667, 0.5, 1.0)


def test_blur_flicker_and_jumps_between_turns_are_measured() -> None:
    scene = Scene(("Tofi",), "wave", 2, "beach", False, ("everyday",), 72, seed=1)
    clip = render(scene)
    elsewhere = render(dataclasses.replace(scene, start_x=40))
    noisy = np.clip(clip + np.random.default_rng(1).normal(0, 4, clip.shape), 0, 255).astype(np.uint8)
    assert looks.edges(np.stack([cv2.blur(frame, (3, 3)) for frame in clip])) < 0.8 * looks.edges(clip)
    still, flickers = looks.flicker(clip), looks.flicker(noisy)
    assert still is not None and flickers is not None and flickers > still + 3
    assert looks.flicker(np.random.default_rng(1).integers(0, 256, clip.shape).astype(np.uint8)) is None
    assert looks.join(clip, clip[::-1]) == 0.0 < looks.join(clip, elsewhere)
