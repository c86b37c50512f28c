"""One turn, top to bottom: read -> predict -> denoise -> decode -> frames, as a generator of events.

Knows the stages of a turn and their order, not the libraries that run them or the events' consumer.
`animegamer_rt.open` is the short way to play; this is the same turn with its parts exposed:

>>> from animegamer_rt.backends.registry import open_engines
>>> from animegamer_rt.bundle.loader import open_bundle
>>> bundle = open_bundle("pocket")
>>> pipeline = Pipeline.open(bundle, open_engines(bundle, plan="fast"), plan="fast")
>>> session = Session.start(bundle, seed=7)
>>> events = list(pipeline.run_turn(session, Instruction.parse("Tofi waves gently in the meadow.")))
>>> [type(event).__name__ for event in events[:2]], len(events), session.turns
(['Understood', 'StatePredicted'], 25, 1)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from .backends.interface import Engines
from .bundle.denoise_plan import DenoisePlan
from .bundle.loader import Bundle
from .bundle.roles import DENOISER, PREDICTOR, VAE
from .errors import PlanError
from .events import Done, Event, FrameReady, Progress, StageSeconds, StatePredicted, Understood
from .session import Session
from .stages.denoiser import Denoiser
from .stages.predictor import Prediction, Predictor
from .stages.prompt import PromptBuilder
from .stages.reader import InstructionReader
from .stages.vae import Vae
from .state.game import Instruction, Scene, motion_scope


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A bundle, one of its plans and the stages of a turn, loaded once for any number of sessions.

    reader: None for a bundle without one, whose predictor gets the instructions unchanged.
    engines: their identity (`Engines.identity`).
    One turn runs at a time. `concurrent_prediction`: the next turn may be predicted in another thread meanwhile.
    """

    bundle: Bundle
    plan_name: str
    plan: DenoisePlan
    reader: InstructionReader | None
    predictor: Predictor
    denoiser: Denoiser
    vae: Vae
    concurrent_prediction: bool
    engines: str

    @classmethod
    def open(cls, bundle: Bundle, engines: Engines, plan: str | None = None, *, unmeasured: bool = False) -> Pipeline:
        """The stages of a bundle with one of its plans (None: its default); `unmeasured`: allow an unmeasured plan.

        Raises PlanError for an unknown plan, or if the engines hold other parts than the plan's.
        """
        plan_name = bundle.default_plan if plan is None else plan
        denoise_plan = DenoisePlan.from_dict(bundle.plan(plan_name, unmeasured=unmeasured))
        parts = bundle.parts_of(plan_name)
        if engines.parts != parts:
            raise PlanError(
                f"the engines hold other parts than the plan {plan_name!r} needs",
                found=engines.parts,
                expected=parts,
                do="open the engines for this plan",
            )
        reader = engines.reader
        geometry, precision = bundle.manifest.geometry, engines.precision_of
        return cls(
            bundle=bundle,
            plan_name=plan_name,
            plan=denoise_plan,
            reader=None if reader is None else InstructionReader.from_bundle(bundle, reader, engines.picture_reader),
            predictor=Predictor(engines.predictor, PromptBuilder.from_bundle(bundle), precision(bundle, PREDICTOR)),
            denoiser=Denoiser(engines.denoiser, denoise_plan, geometry.latent_shape, precision(bundle, DENOISER)),
            vae=Vae(engines.vae, precision(bundle, VAE)),
            concurrent_prediction=engines.concurrent_prediction,
            engines=engines.identity(bundle),
        )

    def predict(self, session: Session, instruction: Instruction) -> Prediction:
        """The prediction of a turn, for `run_turn`; may run while another session's turn is denoised.

        Raises InstructionError if the instruction does not fit the model's window.
        """
        if self.reader is not None:
            instruction = Instruction(self.reader.read(instruction, session.scene, session.earlier_scene).scene.caption)
        return self.predictor.predict(session.history, instruction)

    def run_turn(
        self,
        session: Session,
        instruction: Instruction,
        *,
        prediction: Prediction | None = None,
        shown: Scene | None = None,
        pixel_format: str = "rgb24",
        flip: bool = False,
    ) -> Iterator[Event]:
        """Plays one turn; frames are u8 [H, W, C] in `pixel_format`, bottom row first with `flip`.

        The session gains the turn after its last frame. A turn that fails, or whose generator is closed, leaves the
        session unchanged. `prediction`: from `predict` for this session and instruction, if it was made ahead.
        `shown`: the scene of a finished turn being replayed, which is kept.
        Raises InstructionError if the instruction does not fit the model's window, or as `InstructionReader.read` if
        nothing in it can be drawn or it takes the last turn back, ConfigError for an unknown format,
        UnusableOutputError if a stage gave unusable numbers or frames, BackendError if its engine failed, and
        SessionError if the game got another turn, or was rewound, while this one ran.
        """
        started = time.perf_counter()
        game, turn, sequence, before = session.id, session.turns + 1, itertools.count(), session.log

        # 0. Read the instruction: everyday words become a scene, and the scene a caption that the predictor knows.
        scene, prompt, reader_seconds = None, instruction, 0.0
        if self.reader is not None:
            unseen = self.reader.reads_pictures and session.initial_turn is not None and session.scene is None
            reading = self.reader.read(instruction, session.scene, session.earlier_scene, shown, unseen=unseen)
            scene, prompt = reading.scene, Instruction(reading.scene.caption)
            reader_seconds = reading.seconds
            yield Understood(
                session=game,
                turn=turn,
                sequence=next(sequence),
                scene=reading.scene,
                unknown=reading.unknown,
                answer=reading.answer,
                text=reading.text,
                notice=reading.notice,
            )

        # 1. Predict the state and the shot.
        if prediction is None:
            prediction = self.predictor.predict(session.history, prompt)
        state, rules = prediction.game_state, self.bundle.manifest.compatibility
        scope = motion_scope(state, rules.motion_table, rules.motion_source)
        character = session.character.after(state)
        yield StatePredicted(
            session=game,
            turn=turn,
            sequence=next(sequence),
            game_state=state,
            character=character,
            shown=character.shown(state),
            motion_scope=scope,
            history_turns=prediction.history_turns,
            shot=prediction.shot,
        )

        # 2. Denoise the clip's latent, a step at a time.
        noise = self.denoiser.draw_noise(session.seed, turn, session.noise_version)
        for step in self.denoiser.denoise(prediction.shot, scope, noise):
            yield Progress(
                session=game,
                turn=turn,
                sequence=next(sequence),
                step=step.step,
                steps=step.steps,
                seconds_left=step.seconds_left,
            )
        latent, denoiser_seconds = step.latent, step.seconds

        # 3. Decode the latent into frames.
        decoding = self.vae.decode(latent, pixel_format, flip)
        for index, frame in enumerate(decoding):
            yield FrameReady(session=game, turn=turn, sequence=next(sequence), index=index, frame=frame)

        # 4. Commit the turn to the session.
        session.commit(instruction, prediction, scene, after=before)
        seconds = StageSeconds(
            reader=reader_seconds,
            predictor=prediction.seconds,
            denoiser=denoiser_seconds,
            vae=decoding.seconds,
            total=time.perf_counter() - started,
        )
        yield Done(session=game, turn=turn, sequence=next(sequence), seconds=seconds)
