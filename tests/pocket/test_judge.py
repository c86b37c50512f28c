"""The judge of the pocket world, what its readings count for, and the score that a search of plans takes from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import fakes
from animegamer_export.evaluate.judges import judge_of
from animegamer_pocket.held_out import JudgedTurn, consistency_figures, instruction_figures
from animegamer_pocket.judge import training
from animegamer_pocket.judge.__main__ import HAND
from animegamer_pocket.judge.accuracy import content_figures, damaged_figures, hand_figures
from animegamer_pocket.judge.model import export
from animegamer_pocket.judge.reading import Judge, Reading, judge_input
from animegamer_pocket.judge.scorer import JudgeScorer
from animegamer_pocket.world.captions import parse
from animegamer_pocket.world.render import render
from animegamer_pocket.world.scene import CHARACTERS, Scene, strengths
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.cli import main
from animegamer_rt.errors import ConfigError

STILL = np.full((17, 96, 144, 3), 90, np.uint8)


def perfect_reading(scene: Scene) -> Reading:
    return Reading(
        counts={name: int(name in scene.characters) for name in CHARACTERS},
        smeared=False,
        place=scene.place,
        night=scene.night,
        motion=scene.motion,
        level=scene.level,
        outfits=dict(zip(scene.characters, scene.outfits, strict=True)),
        positions=dict.fromkeys(scene.characters, (float(scene.start_x), float(scene.end_x))),
    )


def judged(text: str, past: list[Scene], reading: Reading | None = None) -> JudgedTurn:
    scene = parse(text, past)
    past.append(scene)
    return JudgedTurn(scene, text, strengths(scene), reading or perfect_reading(scene), 1.0)


def test_the_shipped_judge_reads_what_is_rendered_and_notices_what_is_damaged() -> None:
    judge, renders = Judge(), training.gather(60, None, seed=99, train=False)
    read, damaged = content_figures(judge, renders), damaged_figures(judge, renders)
    assert min(read[name] or 0 for name in ("counts", "place", "night", "outfits")) >= 0.9, read
    assert (read["position_error_px"] or 99) < 8, read
    by_eye = hand_figures(judge, HAND)  # clips that pocket drew: the renders have other motions
    assert (by_eye["motion"] or 0) >= 0.9 and (by_eye["good_suspected"] or 0) <= 0.1, by_eye
    assert (damaged["doubled_noticed"] or 0) >= 0.8 and (damaged["smeared_noticed"] or 0) >= 0.6, damaged


def test_a_character_counts_twice_when_it_stands_there_twice() -> None:
    clip = render(parse("Tofi waves on the left in the meadow"))
    other = render(parse("Tofi waves on the right in the meadow"))
    twice = np.concatenate([clip[:, :, :72], other[:, :, 72:]], axis=2)
    once, doubled = Judge().read(np.stack([clip, twice]))
    assert once.counts["Tofi"] == 1 and once.one_of_each and once.shows_once_each(frozenset({"Tofi"}))
    assert doubled.counts["Tofi"] == 2 and doubled.doubled and not doubled.shows_once_each(frozenset({"Tofi"}))


def test_training_goes_on_where_it_stopped_and_the_exported_judge_reads_as_the_trained_one(tmp_path: Path) -> None:
    material, state = training.gather(6, None, seed=2), tmp_path / "state.pt"
    training.train(material, 1, 0, state)
    state.replace(tmp_path / "first.pt")
    training.train(material, 2, 0, state)
    whole = torch.load(state, weights_only=True)
    saved = torch.load(tmp_path / "first.pt", weights_only=True)
    assert (saved["step"], whole["step"]) == (1, 2)
    network = training.train(material, 2, 0, state)  # nothing is left to do
    export(network, tmp_path / "judge.onnx")
    with torch.inference_mode():
        expected = network(torch.from_numpy(judge_input(material.frames)))
    readings = Judge(tmp_path / "judge.onnx").read_seen(material.frames)
    assert [list(one.counts.values()) for one in readings] == expected[0].argmax(2).tolist()


def test_figures_count_what_was_seen_against_what_was_asked() -> None:
    past: list[Scene] = []
    first = judged("Mirel in a raincoat walks in the forest at night", past)
    kept_reading = perfect_reading(parse("wave", past))
    elsewhere = dataclasses.replace(kept_reading, place="beach", positions={"Mirel": (20.0, 20.0)})
    second = judged("Wave", past, elsewhere)
    assert instruction_figures([first])["mean"] == 1.0
    assert instruction_figures([first, second])["place"] == 0.5
    kept = consistency_figures([[first, second]])
    assert kept["place_kept"] == 0.0 and kept["outfit_kept"] == 1.0 and kept["day_or_night_kept"] == 1.0
    assert kept["position_kept"] == 0.0
    assert kept["instruction_mean_by_turn"] == [1.0, 0.8]
    doubled = dataclasses.replace(first, reading=dataclasses.replace(first.reading, counts={"Mirel": 2}))
    assert instruction_figures([first, doubled])["characters"] == 0.5


def test_the_score_is_the_share_of_what_the_instruction_names(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = parse("Mirel walks in the forest"), parse("Bixo runs")
    readings = [perfect_reading(first), dataclasses.replace(perfect_reading(second), motion="wave", place="beach")]
    monkeypatch.setattr(Judge, "read", lambda judge, clips: readings[: len(clips)])
    judge = JudgeScorer(Judge())
    # The first names three things, all shown. The second names two, of which one is shown; it names no place.
    assert judge.score([STILL, STILL], ["Mirel walks in the forest", "Bixo runs"]) == pytest.approx(4 / 5)
    with pytest.raises(ConfigError, match="cannot judge these clips; found 'Somebody walks'"):
        judge.score([STILL], ["Somebody walks"])


def test_the_export_finds_the_judge_of_a_bundles_world_and_refuses_to_judge_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = judge_of(open_bundle("pocket"))
    assert judge is not None and judge.words.startswith("pocket's judge")
    tiny = str(fakes.write_bundle(tmp_path / "tiny").folder)
    assert main(["search-plans", tiny, "--judge", "--results", str(tmp_path / "results")]) == 2
    assert "no judge is installed" in capsys.readouterr().err
