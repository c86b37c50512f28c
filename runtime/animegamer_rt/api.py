"""Play from Python: open a bundle, start a game, turn instructions into clips.

>>> import animegamer_rt
>>> with animegamer_rt.open("pocket", plan="fast") as player:
...     game = player.start(seed=7)
...     clip = game.turn("Tofi waves gently in the meadow.")
>>> clip.frames.shape, clip.frames.dtype
((17, 96, 144, 3), dtype('uint8'))
>>> clip.state
GameState(motion_level=2, social=0, entertainment=1, stamina=0)
>>> clip.save("turn.mp4")
PosixPath('turn.mp4')

`pipeline.py` plays the same turns with each stage exposed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .backends.interface import Engines
from .backends.registry import open_engines, open_towers
from .bundle.loader import Bundle, open_bundle
from .engine_config import DEFAULT_CONFIG, EngineConfig
from .errors import ConfigError, PictureError, SessionError
from .events import Done, Event, FrameReady, StageSeconds, StatePredicted, Understood
from .pipeline import Pipeline
from .session import Session
from .state.game import CharacterState, GameState, Instruction

if TYPE_CHECKING:
    from .stages.image_start import ImageStart
    from .stages.prompt import HistoryTurn
    from .state.game import Scene


MAX_SCALE = 16
"""Largest enlargement of a saved clip."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One finished turn.

    turn: its number, from 1. frames: uint8 [17, H, W, 3], RGB, top row first; played at `fps` frames per second.
    state: the four predicted strengths, -5..5. character: the character's values after the turn, 0..100; shown: the
    same values as a game displays them, where a social or entertainment strength of 0 lowers that value by 5 for this
    turn only. seconds: time in each stage. understood: how a bundle with a reader understood the instruction; None for
    other bundles.
    """

    turn: int
    instruction: str
    frames: npt.NDArray[np.uint8]
    fps: int
    state: GameState
    character: CharacterState
    shown: CharacterState
    seconds: StageSeconds
    understood: Understood | None = None

    def save(self, path: str | Path, *, scale: int | None = None) -> Path:
        """Writes the clip as H.264 (`.mp4`), or six of its frames side by side (`.png`); returns the path.

        scale: enlarges a video by this whole number; by default clips lower than 384 pixels are enlarged, as many
        players blur tiny videos. An existing file is replaced. Raises ConfigError for another suffix, OutputError if
        the file cannot be written.
        """
        from . import video

        if not isinstance(path, (str, os.PathLike)) or "\0" in os.fsdecode(path):
            raise ConfigError("not the path of a file", found=f"{path!r:.60}", expected="a path (str or Path)")
        if scale is not None and (type(scale) is not int or not 1 <= scale <= MAX_SCALE):
            raise ConfigError("not a scale", found=f"{scale!r:.60}", expected=f"a whole number from 1 to {MAX_SCALE}")
        path = Path(path)
        match path.suffix.lower():
            case ".mp4":
                video.write_clip(path, self.frames, self.fps, scale)
            case ".png":
                video.write_png(path, video.contact_row(self.frames))
            case suffix:
                raise ConfigError(
                    "a clip cannot be saved as this kind of file", found=suffix or str(path), expected=".mp4 or .png"
                )
        return path


class ClipBuilder:
    """Collects the events of one turn, and makes them a Clip once Done has come."""

    def __init__(self) -> None:
        self._frames: list[npt.NDArray[np.uint8]] = []
        self._understood: Understood | None = None

    def add(self, event: Event) -> None:
        match event:
            case Understood():
                self._understood = event
            case StatePredicted():
                self._predicted = event
            case FrameReady():
                self._frames.append(event.frame)
            case Done():
                self._done = event

    def build(self, instruction: str, fps: int) -> Clip:
        predicted = self._predicted
        return Clip(
            turn=self._done.turn,
            instruction=instruction.strip(),
            frames=np.stack(self._frames),
            fps=fps,
            state=predicted.game_state,
            character=predicted.character,
            shown=predicted.shown,
            seconds=self._done.seconds,
            understood=self._understood,
        )


class Player:
    """An open bundle with its engines: starts any number of games, and plays one turn at a time.

    Use it as a context manager, or call `close`. Created by `animegamer_rt.open`; the constructor takes engines that
    are already loaded. Turns of several games may alternate. It may move between threads but not be used by two at
    once. A turn blocks: with asyncio, `await asyncio.to_thread(game.turn, text)`.
    """

    def __init__(
        self, bundle: Bundle, engines: Engines, *, plan: str | None = None, config: EngineConfig = DEFAULT_CONFIG
    ) -> None:
        self._pipeline: Pipeline | None = Pipeline.open(bundle, engines, plan)
        self._engines: Engines | None = engines
        self._config = config
        self._playing = False
        self._process = os.getpid()

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the engines and their memory. Games of this player cannot play further turns."""
        self._pipeline = self._engines = None

    @property
    def pipeline(self) -> Pipeline:
        """The stages, for running them one by one. Raises SessionError if the player is closed."""
        if self._pipeline is None:
            raise SessionError("the player is closed", do="play inside the `with` block, or open the bundle again")
        if os.getpid() != self._process:  # its threads did not survive the fork: it would wait for them for ever
            do = "open the bundle in the process that plays (multiprocessing: use spawn, or open it after the fork)"
            raise SessionError("the player was opened by another process, before a fork", do=do)
        return self._pipeline

    @property
    def bundle(self) -> Bundle:
        """The open bundle: its manifest has sizes, plans, and the words that the model knows (`manifest.world`)."""
        return self.pipeline.bundle

    def start(
        self,
        seed: int | None = None,
        *,
        history_turns: int | None = None,
        image: str | Path | None = None,
        motion: str | None = None,
    ) -> Game:
        """Starts a game. The same bundle, plan, engines, seed and instructions give the same frames.

        seed: 0 or more; None: random, see `Game.seed`. history_turns: how many earlier turns the model sees, 0 or more
        (None: the bundle's default). image, motion: a picture to start from and what happens in it ("gently wave");
        both or neither, and only for a bundle with encoder parts.
        Raises SessionError for a negative number, and ConfigError, BundleError, InstructionError or PictureError if a
        game cannot start from the picture.

        >>> game = player.start(seed=7)
        >>> game.seed, game.turns, game.character
        (7, 0, CharacterState(stamina=50, social=50, entertainment=50))
        """
        seed = secrets.randbelow(2**31) if seed is None else seed
        session = Session.start(self.bundle, seed, history_turns)
        if (image is None) != (motion is None):
            raise ConfigError("a picture and its motion go together", expected="both image= and motion=")
        if image is not None and motion is not None:
            from .stages.image_start import read_image_start

            if not isinstance(image, (str, os.PathLike)):
                found = type(image).__name__
                raise PictureError("not the path of a picture", found=found, expected="a path (str or Path)")
            start = read_image_start(self.bundle, session.history_turns, Path(image), motion)
            session.start_from(*self.encode_image(start))
        return Game(self, session)

    def encode_image(self, start: ImageStart) -> tuple[HistoryTurn, Scene | None]:
        """Turn 0 of a game that starts from a picture, as the prompts of later turns see it, and its scene.

        The scene is None if the bundle has no picture reader, or recognises nobody.
        """
        from .stages.image_start import encode_image_start

        assert self._engines is not None and self._engines.encoder is not None
        towers = open_towers(self.bundle, self._config)
        return encode_image_start(self.bundle, start, towers, self._engines.encoder, self.pipeline.reader)

    @contextmanager
    def _one_turn(self) -> Generator[None, None, None]:
        if self._playing:
            raise SessionError(
                "this player is already playing a turn", do="read its stream to the end, or close the stream"
            )
        self._playing = True
        try:
            yield
        finally:
            self._playing = False


class Game:
    """One game: turns that remember the ones before. Created by `Player.start`.

    session: the game's record, for storing it or running the stages one by one.
    """

    def __init__(self, player: Player, session: Session) -> None:
        self.player = player
        self.session = session

    @property
    def seed(self) -> int:
        """The seed of the game's noise."""
        return self.session.seed

    @property
    def turns(self) -> int:
        """How many turns are finished."""
        return self.session.turns

    @property
    def character(self) -> CharacterState:
        """The character's three values now, 0..100; 50 at the start of a game."""
        return self.session.character

    def turn(self, text: str) -> Clip:
        """Plays one turn to its end.

        text: one instruction of at most 500 characters, in words ("Tofi runs wildly in the night city.") or in the
        paper's caption form; a bundle with a reader takes everyday words, and what they leave out stays.
        Raises InstructionError for a text that cannot be played, SessionError if the player is closed or playing
        another turn, BackendError if the engines fail. The game is then as it was before the turn.

        >>> clip = player.start(seed=7).turn("Bixo runs in the city.")
        >>> clip.turn, len(clip.frames), clip.seconds.total > 0
        (1, 17, True)
        """
        clip = ClipBuilder()
        for event in self.stream(text):
            clip.add(event)
        return clip.build(text, self.player.bundle.manifest.geometry.fps)

    def stream(self, text: str) -> Generator[Event, None, None]:
        """Plays one turn and yields its events: StatePredicted, a Progress per step, a FrameReady per frame, Done.

        With a reader, Understood comes first.
        The first nine frames come while the other eight are decoded. The turn counts once Done was yielded: a stream
        that is closed or dropped earlier, or fails, leaves the game unchanged. Raises as `turn` does; text that cannot
        be played is refused at once, everything else while the stream is read.

        >>> game = player.start(seed=7)
        >>> for event in game.stream("Mirel jumps on the beach."):
        ...     if isinstance(event, StatePredicted):
        ...         break
        >>> game.turns
        0
        """
        instruction = Instruction.parse(text)
        return self._stream(self.player.pipeline, instruction)

    def _stream(self, pipeline: Pipeline, instruction: Instruction) -> Generator[Event, None, None]:
        with self.player._one_turn():
            for event in pipeline.run_turn(self.session, instruction):
                yield event
                if not isinstance(event, Done):
                    self.player.pipeline  # noqa: B018  raises if the player was closed meanwhile

    def rewind(self, turn: int) -> None:
        """Goes back to just after `turn` (0: the start); later turns are deleted. Raises SessionError."""
        self.session.rewind(turn, self.player.pipeline.predictor.predict)

    def branch(self, turn: int, *, seed: int | None = None) -> Game:
        """A new game with this one's turns up to `turn`; this one does not change. Raises SessionError.

        seed: of the new game's further turns (None: this game's).
        """
        return Game(self.player, self.session.branch(turn, self.player.pipeline.predictor.predict, seed))


def open(
    bundle: str | Path | Bundle = "pocket",
    *,
    device: str = "cpu",
    plan: str | None = None,
    precision: str | None = None,
    attention: str | None = None,
    threads: int | None = None,
) -> Player:
    """Loads a bundle's engines; returns a Player, to be used in a `with` block or closed.

    bundle: a name ("pocket" comes with the package), a folder, or an open bundle. device: "cpu", "cpu-fp32", "cuda",
    "tensorrt", "rtx", "torch" or "torch-cpu". plan: "exact", "balanced" or "fast" (None: the bundle's default).
    precision, attention: only for PyTorch, as listed by `animegamer-rt play --help`. threads: CPU threads of
    onnxruntime (None: one per core).
    Raises BundleError, PlanError, ConfigError (an unknown device or setting) or BackendError (a missing library or
    device), each with what to do about it.

    >>> import animegamer_rt
    >>> animegamer_rt.open("poket")
    Traceback (most recent call last):
    animegamer_rt.errors.BundleNotFoundError: no bundle 'poket'; ...; did you mean 'pocket'?
    """
    config = EngineConfig(device, precision, attention, threads)
    bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
    bundle.plan(plan)  # refuse an unknown plan before loading the engines
    return Player(bundle, open_engines(bundle, config, plan=plan), plan=plan, config=config)
