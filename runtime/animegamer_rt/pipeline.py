"""One turn, top to bottom: predict -> denoise -> decode -> frames, as a generator of events.

Knows the rooms a turn passes through, in order; nothing of the libraries that run them, nor of who watches.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from .backends.interface import Engines
from .bundle.denoise_plan import DenoisePlan
from .bundle.loader import Bundle
from .errors import TurnCancelled
from .events import Done, Event, FrameReady, Progress, StageSeconds, StatePredicted
from .session import Session
from .stages.denoiser import Denoiser
from .stages.predictor import Prediction, Predictor
from .stages.prompt import PromptBuilder
from .stages.vae import Vae
from .state.game import motion_scope
from .state.instruction import Instruction


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What turns need, loaded once for any number of sessions; one turn runs at a time."""

    bundle: Bundle
    plan_name: str
    plan: DenoisePlan
    predictor: Predictor
    denoiser: Denoiser
    vae: Vae
    overlaps: bool
    """Whether a turn may be predicted while another one is denoised."""


def open_rooms(bundle: Bundle, engines: Engines, plan: str | None = None) -> Pipeline:
    """The rooms of a bundle, with one of its plans (None = its default). Raises PlanError for an unknown one."""
    name = plan or bundle.default_plan
    denoise_plan = DenoisePlan.from_dict(bundle.plan(name))
    predictor = Predictor(engines.predictor, PromptBuilder.from_bundle(bundle))
    denoiser = Denoiser(engines.denoiser, denoise_plan, bundle.manifest.geometry.latent_shape)
    return Pipeline(bundle, name, denoise_plan, predictor, denoiser, Vae(engines.vae), engines.overlaps)


def run_turn(
    rooms: Pipeline,
    session: Session,
    instruction: Instruction,
    *,
    prediction: Prediction | None = None,
    pixel_format: str = "rgb24",
    flip: bool = False,
    cancel: threading.Event | None = None,
) -> Iterator[Event]:
    """Plays one turn. The session keeps it after the last frame; a turn that fails, is cancelled, or whose generator is
    closed leaves the session as it was. Raises TurnCancelled within one step of `cancel` being set. `prediction` is the
    predictor's for this session and instruction, if it was made ahead.
    """
    cancel, turn = cancel or threading.Event(), session.turns + 1
    sequence, rules = itertools.count(), rooms.bundle.manifest.compatibility
    started = time.perf_counter()

    # 1. What happens, and how it leaves the character. What the denoiser begins with is drawn meanwhile.
    _stop_if(cancel, turn)
    noise = rooms.denoiser.draw_noise(session.seed, turn)
    prediction = prediction or rooms.predictor.predict(session.history, instruction)
    state = prediction.game_state
    scope = motion_scope(state, rules.motion_table, rules.motion_source)
    character = session.character.after(state)
    stamp = (session.id, turn)
    shown, fitted = character.shown(state), prediction.history_turns
    yield StatePredicted(*stamp, next(sequence), state, character, shown, scope, fitted, prediction.shot)

    # 2. What it looks like, as a latent.
    for at in rooms.denoiser.denoise(prediction.shot, scope, noise):
        _stop_if(cancel, turn)
        yield Progress(*stamp, next(sequence), at.step, at.steps, at.seconds_left)

    # 3. What it looks like, as frames.
    for index, frame in enumerate(rooms.vae.decode(at.latent, pixel_format, flip)):
        _stop_if(cancel, turn)
        yield FrameReady(*stamp, next(sequence), index, frame)

    # 4. The turn counts.
    session.keep(instruction, prediction)
    total = time.perf_counter() - started
    yield Done(*stamp, next(sequence), StageSeconds(prediction.seconds, at.seconds, rooms.vae.seconds, total))


def _stop_if(cancel: threading.Event, turn: int) -> None:
    if cancel.is_set():
        raise TurnCancelled("the turn was cancelled", where=f"turn {turn}")
