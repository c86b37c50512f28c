"""A turn is a road of events; one that fails or is stopped leaves the session as it was."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

import fakes
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import REFERENCE
from animegamer_rt.errors import ConfigError, PlanError, SessionError
from animegamer_rt.events import FrameReady, Progress, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import CharacterState, GameState, Instruction

WAVE = Instruction("Mia waves.")


def test_a_turn_of_noise_version_1_is_played_again_to_its_old_bytes(bundle: Bundle) -> None:
    pipeline, session = Pipeline.open(bundle, fakes.fake_engines(), "exact"), Session.start(bundle, seed=7)
    session.noise_version, sha = 1, sha256()
    for text in ("Mia waves.", "Tobo runs."):
        for event in pipeline.run_turn(session, Instruction(text)):
            if isinstance(event, FrameReady):
                sha.update(event.frame.tobytes())
    assert sha.hexdigest() == "940a40559021e34960c3415924b7f8c832ec0e8f5c77e0ccf27295b09bf9ae51"


def test_state_event_applies_the_rules_of_the_game(bundle: Bundle) -> None:
    pipeline = Pipeline.open(bundle, fakes.fake_engines(fakes.FakePredictor(strengths=(2, 1, 0, -2))))
    state = next(pipeline.run_turn(Session.start(bundle, seed=7), WAVE))
    assert isinstance(state, StatePredicted)
    assert state.game_state == GameState(motion_level=2, social=1, entertainment=0, stamina=-2)
    assert state.character == CharacterState(stamina=40, social=55, entertainment=50)
    assert state.shown == CharacterState(stamina=40, social=55, entertainment=45)
    assert state.motion_scope == 2.5


def test_reference_bundle_reads_the_demo_table_with_social(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "reference", compatibility=REFERENCE)
    denoiser = fakes.FakeDenoiser()
    pipeline = Pipeline.open(bundle, fakes.fake_engines(fakes.FakePredictor(strengths=(1, 4, 0, 0)), denoiser))
    list(pipeline.run_turn(Session.start(bundle, seed=7), WAVE))
    assert denoiser.motion_scopes == [20.0]


def test_closing_a_turn_runs_no_further_step(bundle: Bundle) -> None:
    denoiser = fakes.FakeDenoiser()
    pipeline = Pipeline.open(bundle, fakes.fake_engines(denoiser=denoiser), "exact")
    events = pipeline.run_turn(Session.start(bundle, seed=7), WAVE)
    while not (isinstance(event := next(events), Progress) and event.step == 2):
        pass
    events.close()  # type: ignore[attr-defined]
    assert len(denoiser.steps) == 2


def test_unknown_plan_and_pixel_format_are_refused(bundle: Bundle) -> None:
    with pytest.raises(PlanError, match="no plan 'fastest'"):
        Pipeline.open(bundle, fakes.fake_engines(), "fastest")
    pipeline, session = Pipeline.open(bundle, fakes.fake_engines()), Session.start(bundle, 7)
    with pytest.raises(ConfigError, match="pixel_format: .*yuv"):
        list(pipeline.run_turn(session, WAVE, pixel_format="yuv"))
    assert session.turns == 0


@pytest.mark.parametrize("meanwhile", ["turn", "rewind"])
def test_a_turn_does_not_count_in_a_game_that_was_changed_while_it_ran(bundle: Bundle, meanwhile: str) -> None:
    pipeline, session = Pipeline.open(bundle, fakes.fake_engines()), Session.start(bundle, seed=7)
    list(pipeline.run_turn(session, WAVE))
    slow = pipeline.run_turn(session, WAVE)
    next(slow)
    if meanwhile == "turn":
        list(pipeline.run_turn(session, WAVE))
    else:
        session.rewind(0, pipeline.predictor.predict)
    turns = session.turns
    with pytest.raises(
        SessionError, match=f"moved on while .*found {turns} turns; expected 1; .*one turn of a game at a time"
    ):
        list(slow)
    assert session.turns == turns
