"""The measures of the pocket world: motion, the judge, the evaluation, PSNR, contact sheets, the data set's files."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from animegamer_export.evaluate.metrics import psnr
from animegamer_export.pocket.evaluate import (
    JudgedTurn,
    consistency_figures,
    held_out_games,
    held_out_turns,
    instruction_figures,
    play_rendered,
    state_figures,
)
from animegamer_export.pocket.evaluation.contact_sheet import SheetRow, contact_sheet
from animegamer_export.pocket.evaluation.motion import fit_scale, motion_amount, motion_figures
from animegamer_export.pocket.evaluation.reconstruction import vae_figures
from animegamer_export.pocket.judge import scorer as score
from animegamer_export.pocket.judge import training as judge_training
from animegamer_export.pocket.judge.model import Judge, Reading, judge_input, load_judge, read_clips, save_judge
from animegamer_export.pocket.training.vae_loss import change_loss
from animegamer_export.pocket.world import clips as clip_files
from animegamer_export.pocket.world import sampling
from animegamer_export.pocket.world.captions import caption, parse
from animegamer_export.pocket.world.render import render
from animegamer_export.pocket.world.scene import CHARACTERS, Scene, is_held_out, strengths
from animegamer_rt.errors import ConfigError

STILL = np.full((17, 96, 144, 3), 90, np.uint8)


def seen(scene: Scene) -> Reading:
    """What a judge without fault would read."""
    outfits = dict(zip(scene.characters, scene.outfits, strict=True))
    return Reading(
        frozenset(scene.characters),
        outfits,
        scene.place,
        scene.night,
        scene.motion,
        float(scene.start_x),
        float(scene.end_x),
    )


def judged(text: str, past: list[Scene], reading: Reading | None = None) -> JudgedTurn:
    scene = parse(text, past)
    past.append(scene)
    return JudgedTurn(scene, text, len(past) - 1, STILL, strengths(scene), reading or seen(scene), 1.0)


def test_a_still_clip_has_no_motion() -> None:
    assert motion_amount(STILL) == 0.0


def test_a_sliding_picture_moves_by_its_speed() -> None:
    rng = np.random.default_rng(0)
    noise = cv2.GaussianBlur(rng.integers(0, 255, (96, 200, 3)).astype(np.float32), (0, 0), 3)
    wide = np.clip((noise - 128) * 6 + 128, 0, 255).astype(np.uint8)
    clip = np.stack([wide[:, 2 * frame : 2 * frame + 144] for frame in range(17)])
    assert motion_amount(clip) == pytest.approx(2.0, abs=0.3)


def test_thresholds_fall_between_the_levels() -> None:
    amounts = [level * 0.5 + shift for level in range(1, 6) for shift in (-0.05, 0.05)]
    levels = [level for level in range(1, 6) for _ in range(2)]
    scale = fit_scale(amounts, levels)
    assert scale.thresholds == pytest.approx((0.75, 1.25, 1.75, 2.25))
    figures = motion_figures(amounts, levels, scale)
    assert figures["acc_f"] == 1.0 and figures["mae_f_levels"] == 0.0 and figures["amount_ratio_5_to_1"] == 5.0
    assert motion_figures([0.5] * 2, [1, 3], scale)["mae_f_levels"] == 1.0


def test_thresholds_need_clips_of_every_level() -> None:
    with pytest.raises(ValueError, match=r"level \[5\]"):
        fit_scale([1.0, 2.0, 3.0, 4.0], [1, 2, 3, 4])


def test_a_judge_reads_one_or_two_characters_and_survives_saving(tmp_path: Path) -> None:
    torch.manual_seed(0)
    judge = Judge()
    clips = np.stack([STILL, render(parse("Mirel and Tofi wave"))])
    readings = read_clips(judge, clips)
    assert all(1 <= len(reading.characters) <= 2 for reading in readings)
    save_judge(judge, tmp_path / "judge.pt")
    assert read_clips(load_judge(tmp_path / "judge.pt"), clips) == readings


def test_the_judge_refuses_clips_of_another_shape() -> None:
    with pytest.raises(ValueError, match="expected"):
        judge_input(STILL[None, :5])


def test_the_truth_of_a_scene_has_the_least_loss() -> None:
    scenes = [parse("Mirel in a raincoat and Tofi wave at night"), parse("Bixo runs in the city")]
    who, worn, place, night, motion, where = judge_training.targets(scenes)
    assert who.sum(dim=1).tolist() == [2, 1] and worn[1].tolist().count(-100) == len(CHARACTERS) - 1
    one_hot = torch.nn.functional.one_hot
    perfect = (
        (who * 2 - 1) * 9,
        one_hot(worn.clamp(min=0), 3).float() * 9,
        one_hot(place, 8).float() * 9,
        (night[:, None] * 2 - 1) * 9,
        one_hot(motion, 9).float() * 6,
        where,
    )
    truth = (who, worn, place, night, motion, where)
    swapped = tuple(group.flip(0) for group in perfect)
    assert judge_training.judge_loss(perfect, truth) < 1.5 < judge_training.judge_loss(swapped, truth)


def test_worsened_clips_stay_in_range_and_are_the_same_for_the_same_seed() -> None:
    frames = judge_input(np.stack([STILL, render(parse("Zelki flies"))]))
    first, second = (judge_training.degrade(frames, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.shape == frames.shape and float(first.abs().max()) <= 1
    assert torch.equal(first, second) and not torch.equal(first, frames)


def test_the_rendered_player_gets_every_state_right_and_keeps_the_game() -> None:
    for game in held_out_games(3, 3, seed=1):
        played = play_rendered([instruction for _, instruction in game], seed=0)
        assert [states for _, states in played] == [strengths(scene) for scene, _ in game]


def test_held_out_first_turns_start_where_a_reader_expects_them() -> None:
    for scene, text in held_out_turns(10, seed=4):
        assert is_held_out(scene)
        assert dataclasses.replace(parse(text), seed=scene.seed) == scene


def test_figures_count_what_was_seen_against_what_was_asked() -> None:
    past: list[Scene] = []
    first = judged("Mirel in a raincoat walks in the forest at night", past)
    lost = dataclasses.replace(seen(parse("wave", past)), place="beach", start_x=20.0)
    second = judged("Wave", past, lost)
    assert instruction_figures([first])["mean"] == 1.0
    assert instruction_figures([first, second])["place"] == 0.5
    kept = consistency_figures([[first, second]])
    assert kept["place_kept"] == 0.0 and kept["outfit_kept"] == 1.0 and kept["day_or_night_kept"] == 1.0
    assert kept["position_kept"] == 0.0 and kept["position_error_px"] == 84.0
    assert kept["instruction_mean_by_turn"] == [1.0, 0.8]
    wrong = dataclasses.replace(first, states=(1, 0, 0, -1))
    assert state_figures([first, wrong])["motion_level"] == 0.5


def test_the_score_is_the_share_of_what_the_instruction_says(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = parse("Mirel walks in the forest"), parse("Bixo runs")
    readings = [seen(first), dataclasses.replace(seen(second), motion="wave", place="beach")]
    monkeypatch.setattr(score, "read_clips", lambda judge, clips: readings[: len(clips)])
    scorer = score.JudgeScorer(Judge())
    # Three things are said of the first and shown; two of the second, of which one is: nobody said where.
    assert scorer.score([STILL, STILL], ["Mirel walks in the forest", "Bixo runs"]) == pytest.approx(4 / 5)
    with pytest.raises(ConfigError, match="cannot judge this; found 'Somebody walks'"):
        scorer.score([STILL], ["Somebody walks"])


def test_a_scorer_opens_a_saved_judge_and_refuses_anything_else(tmp_path: Path) -> None:
    save_judge(Judge(), tmp_path / "judge.pt")
    assert 0 <= score.open_scorer(tmp_path / "judge.pt").score([STILL], ["Mirel walks in the forest"]) <= 1
    (tmp_path / "words.pt").write_text("no judge")
    (tmp_path / "hi.pt").write_text("hi\n")  # which unpickles to an error of its own
    torch.save({"weight": torch.zeros(1)}, tmp_path / "other.pt")
    for name in ("none.pt", "words.pt", "hi.pt", "other.pt"):
        with pytest.raises(ConfigError, match=f"{name}: not a judge of pocket"):
            score.open_scorer(tmp_path / name)


def test_psnr_is_the_textbook_figure() -> None:
    assert psnr(STILL, STILL) == 100.0
    assert psnr(STILL, STILL + 5) == pytest.approx(20 * np.log10(255 / 5))


def test_vae_figures_cover_all_levels_and_refuse_a_wrong_shape() -> None:
    figures = vae_figures(lambda clips: np.clip(clips.astype(int) + 4, 0, 255).astype(np.uint8), clips=5)
    assert set(figures["psnr_db_by_level"]) == {"1", "2", "3", "4", "5"}
    assert figures["psnr_db"] == pytest.approx(20 * np.log10(255 / 4), abs=0.3)
    with pytest.raises(ValueError, match="expected uint8"):
        vae_figures(lambda clips: clips[:, :9], clips=5)


def test_a_contact_sheet_shows_every_row(tmp_path: Path) -> None:
    rows = [SheetRow("Character: Mirel; Motion: gently wave; Background: day room.", {"one": STILL, "two": STILL})] * 3
    contact_sheet(rows, tmp_path / "sheet.png")
    sheet = cv2.imread(str(tmp_path / "sheet.png"))
    assert sheet.shape == (3 * (18 + 2 * 100), 6 * 144 + 8, 3)
    with pytest.raises(ValueError, match="at least one row"):
        contact_sheet([], tmp_path / "none.png")


def test_a_written_data_set_reads_back_and_depends_on_the_seed_only(tmp_path: Path) -> None:
    scenes = sampling.sample_scenes(3, seed=8)
    clip_files.write(scenes, tmp_path)
    clips, read = clip_files.read(tmp_path)
    assert read == scenes == sampling.sample_scenes(3, seed=8) and scenes != sampling.sample_scenes(3, seed=9)
    assert isinstance(clips, np.memmap) and np.array_equal(clips, clip_files.render_many(scenes))
    assert caption(scenes[0]) in (tmp_path / "scenes.jsonl").read_text(encoding="utf-8").splitlines()[0]


def test_sampling_uses_the_random_source_it_is_given() -> None:
    state = random.getstate()
    sampling.sample_scenes(2, seed=1)
    assert random.getstate() == state


def test_a_smear_of_two_places_gains_nothing_by_its_bustle() -> None:
    here = torch.zeros(1, 3, 9, 32, 48)
    for frame in range(9):
        here[:, :, frame, 8:20, 4 * frame : 4 * frame + 8] = 1
    there = here.roll(4, dims=3)
    smear, still = (here + there) / 2, here[:, :, 4:5].expand_as(here)
    # Who draws the one is right half of the time; who draws both never is.
    wrong = float((there - here).square().mean())
    assert float((smear - here).square().mean()) < 0.6 * wrong / 2
    bustle = [float(change_loss(drawn, here)) for drawn in (here, there, smear, still)]
    assert bustle[0] == 0 and bustle[2] == pytest.approx(bustle[1] / 2, rel=0.05) and bustle[3] > 1.5 * bustle[1]
