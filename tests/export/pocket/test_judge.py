"""The judge of the pocket world, what its readings count for, and the score that a search of plans takes from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from animegamer_export.pocket.evaluate import (
    JudgedTurn,
    consistency_figures,
    held_out_turns,
    instruction_figures,
    state_figures,
)
from animegamer_export.pocket.judge import scorer, training
from animegamer_export.pocket.judge.model import Judge, Reading, judge_input, load_judge, read_clips, save_judge
from animegamer_export.pocket.world.captions import parse
from animegamer_export.pocket.world.render import render
from animegamer_export.pocket.world.scene import Scene, is_held_out, strengths
from animegamer_rt.errors import ConfigError

STILL = np.full((17, 96, 144, 3), 90, np.uint8)


def perfect_reading(scene: Scene) -> Reading:
    outfits = dict(zip(scene.characters, scene.outfits, strict=True))
    x = float(scene.start_x), float(scene.end_x)
    return Reading(frozenset(scene.characters), outfits, scene.place, scene.night, scene.motion, *x)


def judged(text: str, past: list[Scene], reading: Reading | None = None) -> JudgedTurn:
    scene = parse(text, past)
    past.append(scene)
    return JudgedTurn(scene, text, len(past) - 1, STILL, strengths(scene), reading or perfect_reading(scene), 1.0)


def test_a_saved_judge_reads_one_or_two_characters_and_refuses_clips_of_another_shape(tmp_path: Path) -> None:
    torch.manual_seed(0)
    judge = Judge()
    clips = np.stack([STILL, render(parse("Mirel and Tofi wave"))])
    readings = read_clips(judge, clips)
    assert all(1 <= len(reading.characters) <= 2 for reading in readings)
    save_judge(judge, tmp_path / "judge.pt")
    assert read_clips(load_judge(tmp_path / "judge.pt"), clips) == readings
    with pytest.raises(ValueError, match="expected"):
        judge_input(STILL[None, :5])


def test_right_outputs_of_the_judge_cost_less_than_those_of_another_scene() -> None:
    scenes = [parse("Mirel in a raincoat and Tofi wave at night"), parse("Bixo runs in the city")]
    who, worn, place, night, motion, where = truth = training.targets(scenes)
    one_hot = torch.nn.functional.one_hot
    choices = [one_hot(index.clamp(min=0), count).float() * 9 for index, count in ((worn, 3), (place, 8), (motion, 9))]
    right = ((who * 2 - 1) * 9, choices[0], choices[1], (night[:, None] * 2 - 1) * 9, choices[2], where)
    wrong = tuple(output.flip(0) for output in right)
    assert training.judge_loss(right, truth) < 1.5 < training.judge_loss(wrong, truth)


def test_degraded_clips_stay_in_range_and_depend_on_the_seed_only() -> None:
    frames = judge_input(np.stack([STILL, render(parse("Zelki flies"))]))
    first, second = (training.degrade(frames, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.shape == frames.shape and float(first.abs().max()) <= 1
    assert torch.equal(first, second) and not torch.equal(first, frames)


def test_held_out_first_turns_read_back_to_their_scenes() -> None:
    for scene, text in held_out_turns(10, seed=4):
        assert is_held_out(scene)
        assert dataclasses.replace(parse(text), seed=scene.seed) == scene


def test_figures_count_what_was_seen_against_what_was_asked() -> None:
    past: list[Scene] = []
    first = judged("Mirel in a raincoat walks in the forest at night", past)
    elsewhere = dataclasses.replace(perfect_reading(parse("wave", past)), place="beach", start_x=20.0)
    second = judged("Wave", past, elsewhere)
    assert instruction_figures([first])["mean"] == 1.0
    assert instruction_figures([first, second])["place"] == 0.5
    kept = consistency_figures([[first, second]])
    assert kept["place_kept"] == 0.0 and kept["outfit_kept"] == 1.0 and kept["day_or_night_kept"] == 1.0
    assert kept["position_kept"] == 0.0 and kept["position_error_px"] == 84.0
    assert kept["instruction_mean_by_turn"] == [1.0, 0.8]
    wrong = dataclasses.replace(first, states=(1, 0, 0, -1))
    assert state_figures([first, wrong])["motion_level"] == 0.5


def test_the_score_is_the_share_of_what_the_instruction_names(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = parse("Mirel walks in the forest"), parse("Bixo runs")
    readings = [perfect_reading(first), dataclasses.replace(perfect_reading(second), motion="wave", place="beach")]
    monkeypatch.setattr(scorer, "read_clips", lambda judge, clips: readings[: len(clips)])
    judge = scorer.JudgeScorer(Judge())
    # The first names three things, all shown. The second names two, of which one is shown; it names no place.
    assert judge.score([STILL, STILL], ["Mirel walks in the forest", "Bixo runs"]) == pytest.approx(4 / 5)
    with pytest.raises(ConfigError, match="cannot judge this; found 'Somebody walks'"):
        judge.score([STILL], ["Somebody walks"])


def test_a_scorer_opens_a_saved_judge_and_refuses_anything_else(tmp_path: Path) -> None:
    save_judge(Judge(), tmp_path / "judge.pt")
    assert 0 <= scorer.open_scorer(tmp_path / "judge.pt").score([STILL], ["Mirel walks in the forest"]) <= 1
    (tmp_path / "words.pt").write_text("no judge")
    (tmp_path / "hi.pt").write_text("hi\n")  # which unpickles to an error of its own
    torch.save({"weight": torch.zeros(1)}, tmp_path / "other.pt")
    for name in ("none.pt", "words.pt", "hi.pt", "other.pt"):
        with pytest.raises(ConfigError, match=f"{name}: not a judge of pocket"):
            scorer.open_scorer(tmp_path / name)
