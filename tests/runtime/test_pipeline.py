"""A turn is a road of events; a game of turns keeps its window, has no limit, and can go back, exactly."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import fakes
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import REFERENCE
from animegamer_rt.errors import ConfigError, PlanError, SessionError
from animegamer_rt.events import FrameReady, Progress, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Predict, Session
from animegamer_rt.stages.predictor import Prediction
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


TEXTS = ["Mia waves.", "Mia runs.", "Tobo runs.", "Tobo flies.", "Mia flies.", "Mia sleeps."]


@pytest.fixture
def pipeline(bundle: Bundle) -> Pipeline:
    return Pipeline.open(bundle, fakes.fake_engines())


def play(pipeline: Pipeline, session: Session, text: str) -> np.ndarray:
    events = pipeline.run_turn(session, Instruction(text))
    return np.stack([event.frame for event in events if isinstance(event, FrameReady)])


def played(pipeline: Pipeline, turns: int, **options: int) -> Session:
    session = Session.start(pipeline.bundle, 7, **options)
    for text in TEXTS[:turns]:
        play(pipeline, session, text)
    return session


@pytest.mark.parametrize("window", [0, 5])
def test_only_the_windows_shots_are_kept(pipeline: Pipeline, window: int) -> None:
    session = played(pipeline, 6, history_turns=window)
    assert sorted(session.shots) == list(range(7 - min(window, 6), 7))
    assert [turn.text for turn in session.history] == TEXTS[6 - window :]
    assert all(turn.shot.dtype == np.float16 for turn in session.history)


def test_hundred_turns_are_no_limit(pipeline: Pipeline) -> None:
    session = Session.start(pipeline.bundle, 7)
    for _ in range(100):
        play(pipeline, session, "Mia waves.")
    assert session.turns == 100 and len(session.shots) == 2
    assert session.character == CharacterState(stamina=0, social=100, entertainment=50)


@pytest.mark.parametrize("turn", [0, 3, 5])
def test_rewound_game_goes_on_to_the_same_bytes(pipeline: Pipeline, turn: int) -> None:
    session = played(pipeline, 6)
    session.rewind(turn, pipeline.predictor.predict)
    straight = played(pipeline, turn)
    assert (session.turns, session.character, session.log) == (turn, straight.character, straight.log)
    assert (play(pipeline, session, "Mia sleeps.") == play(pipeline, straight, "Mia sleeps.")).all()


def test_turn_that_was_not_played_cannot_be_gone_back_to(pipeline: Pipeline) -> None:
    session = played(pipeline, 3)
    for turn in (-1, 4):
        with pytest.raises(SessionError, match=f"no such turn to rewind to; found {turn}; expected 0 to 3"):
            session.rewind(turn, pipeline.predictor.predict)
    assert session.turns == 3


def test_failed_rewind_leaves_the_game_as_it_was(pipeline: Pipeline) -> None:
    session = played(pipeline, 6)
    before = (session.log, session.character, sorted(session.shots))

    def failing(*_: object) -> None:
        raise MemoryError("no memory")

    with pytest.raises(MemoryError):
        session.rewind(3, failing)  # type: ignore[arg-type]
    assert (session.log, session.character, sorted(session.shots)) == before


def test_branch_goes_its_own_way_and_leaves_the_first_game_alone(pipeline: Pipeline) -> None:
    session = played(pipeline, 4)
    branch = session.branch(2, pipeline.predictor.predict, seed=99)
    assert (branch.turns, branch.seed, session.turns, session.seed) == (2, 99, 4, 7)
    assert branch.id != session.id
    theirs, ours = play(pipeline, branch, "Tobo runs."), played(pipeline, 3)
    assert not (theirs == play(pipeline, ours, "Tobo runs.")).all()
    assert [turn.text for turn in session.log] == TEXTS[:4]


def resumed(
    pipeline: Pipeline, session: Session, first: int, shots: dict[int, np.ndarray], predict: Predict
) -> Session:
    """The game as someone knows it who has its last turns only."""
    return Session.resume(
        pipeline.bundle,
        session.seed,
        session.history_turns,
        session.log[first:],
        session.character,
        shots,
        predict,
        omitted_turns=first,
    )


def forbidden(*_: object) -> Prediction:
    raise AssertionError("nothing needs to be predicted again")


@pytest.mark.parametrize("first", [1, 2])
def test_game_goes_on_to_the_same_bytes_without_its_first_turns(pipeline: Pipeline, first: int) -> None:
    session = played(pipeline, 4)
    other = resumed(pipeline, session, first, session.shots, forbidden)
    assert (other.turns, other.character, sorted(other.shots)) == (4, session.character, [3, 4])
    for text in TEXTS[4:]:
        assert (play(pipeline, other, text) == play(pipeline, session, text)).all()
    assert (other.turns, other.character, sorted(other.shots)) == (6, session.character, [5, 6])


@pytest.mark.parametrize("kept", [(), (4,)])
def test_missing_shots_are_predicted_again_to_the_same_bytes(pipeline: Pipeline, kept: tuple[int, ...]) -> None:
    session = played(pipeline, 4)
    shots = {number: session.shots[number] for number in kept}
    other = resumed(pipeline, session, 0, shots, pipeline.predictor.predict)
    assert sorted(other.shots) == [3, 4]
    assert all((other.shots[number] == shot).all() for number, shot in session.shots.items())
    assert (play(pipeline, other, "Mia flies.") == play(pipeline, session, "Mia flies.")).all()


def test_omitted_turns_are_missed_where_they_are_needed(pipeline: Pipeline) -> None:
    session = played(pipeline, 4)
    with pytest.raises(SessionError, match="turns were omitted; found turns 4 to 4; expected all turns from 1"):
        resumed(pipeline, session, 3, session.shots, forbidden)
    with pytest.raises(SessionError, match="cannot predict the game's shots again: its first turns were omitted"):
        resumed(pipeline, session, 2, {4: session.shots[4]}, forbidden)


def test_a_game_without_its_first_turns_cannot_go_back(pipeline: Pipeline) -> None:
    session = played(pipeline, 4)
    other = resumed(pipeline, session, 2, session.shots, forbidden)
    with pytest.raises(SessionError, match="cannot rewind the game: its first turns were omitted"):
        other.rewind(3, pipeline.predictor.predict)
    assert (other.turns, sorted(other.shots)) == (4, [3, 4])
