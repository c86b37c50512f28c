"""One player's game: its turns, the history window, the character, the seed. No turn limit, no globals.

Only the last `history_turns` shots are kept; older ones can be predicted again, exactly, from the instructions, so
rewinding needs the predictor's `predict`. To continue, a game needs only the turns of its window: a resumed game may
omit earlier ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .bundle.loader import Bundle
from .errors import SessionError
from .noise import SEEDS, VERSION
from .stages.predictor import Prediction
from .stages.prompt import HistoryTurn
from .state.game import CharacterState, Instruction, Scene, TurnRecord

Predict = Callable[[Sequence[HistoryTurn], Instruction], Prediction]
"""`Predictor.predict`."""


@dataclass(slots=True)
class Session:
    """A game. `log`: the finished turns; `character`: its values now; `history`: the turns in the next prompt.

    `scene`: what the last turn showed, as the reader understood it, which the next instruction changes. None: no
    reader, or nothing shown yet.
    The noise of turn k depends on `seed`, k and the plan, so a resumed or rewound game continues to the same bytes.
    `omitted_turns` turns precede `log`: 0 except in a game that was resumed with its last turns only.
    `initial_turn` is turn 0 of a game that starts from an image; it has no clip, and leaves the window like any turn.
    """

    bundle_name: str
    bundle_fingerprint: str
    seed: int
    history_turns: int
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    log: tuple[TurnRecord, ...] = ()
    character: CharacterState = field(default_factory=CharacterState)
    _shots: dict[int, npt.NDArray[np.float16]] = field(default_factory=dict)
    """Turn number -> shot fp16 [226, D]; the last `history_turns` turns only."""
    omitted_turns: int = 0
    initial_turn: HistoryTurn | None = None
    scene: Scene | None = None
    initial_scene: Scene | None = None
    """The scene of the picture that the game starts from, if a reader recognised one."""
    noise_version: int = VERSION
    """Of the next turn's noise: an earlier one where a turn that had it is played again."""

    @classmethod
    def start(cls, bundle: Bundle, seed: int, history_turns: int | None = None) -> Session:
        """A new game. `history_turns` None is the bundle's own window. Raises SessionError for a negative number."""
        window = bundle.manifest.compatibility.history_turns if history_turns is None else history_turns
        _check_not_negative(seed=seed, history_turns=window)
        return cls(bundle.manifest.name, bundle.fingerprint, seed, window)

    @classmethod
    def resume(
        cls,
        bundle: Bundle,
        seed: int,
        history_turns: int,
        log: Sequence[TurnRecord],
        character: CharacterState,
        shots: Mapping[int, npt.NDArray[np.float16]],
        predict: Predict,
        *,
        omitted_turns: int = 0,
        scene: Scene | None = None,
        initial_turn: HistoryTurn | None = None,
    ) -> Session:
        """A game that continues after `log`, which itself follows `omitted_turns` turns.

        character, scene: the current ones. shots: turn number -> fp16 [226, D]. Those that the window lacks are
        predicted again, from the last turn whose own window is in `shots`; without one from turn 1, so `omitted_turns`
        must then be 0. initial_turn: of a game that starts from a picture, unless it has left the window.
        Raises SessionError if the shots cannot be predicted.
        """
        _check_not_negative(seed=seed, history_turns=history_turns, omitted_turns=omitted_turns)
        session = cls(bundle.manifest.name, bundle.fingerprint, seed, history_turns, omitted_turns=omitted_turns)
        session.log, session.character, session.scene = tuple(log), character, scene
        session.initial_turn = initial_turn
        session._shots = session._window_shots(session.turns, shots, predict)
        return session

    def start_from(self, turn: HistoryTurn, scene: Scene | None = None) -> None:
        """Begins the game with a picture: its turn 0, and the scene in it (None: none was read)."""
        self.initial_turn, self.initial_scene, self.scene = turn, scene, scene

    @property
    def earlier_scene(self) -> Scene | None:
        """What the turn before the last showed, if the window has both."""
        if min(len(self.log), self.history_turns) >= 2:
            return self.log[-2].scene
        return self.initial_scene if self.turns == 1 else None

    @property
    def turns(self) -> int:
        return self.omitted_turns + len(self.log)

    @property
    def history(self) -> tuple[HistoryTurn, ...]:
        """The turns in the next prompt, oldest first."""
        return self._window(self.turns)

    @property
    def shots(self) -> dict[int, npt.NDArray[np.float16]]:
        """The kept shots by turn number, for saving."""
        return dict(self._shots)

    def commit(
        self,
        instruction: Instruction,
        prediction: Prediction,
        scene: Scene | None = None,
        *,
        after: tuple[TurnRecord, ...] | None = None,
    ) -> None:
        """Adds a finished turn to the game. Call it once per turn, after the last frame.

        after: the `log` from which the turn was predicted. Raises SessionError if the game has moved on since, by
        another turn or a rewind.
        """
        if after is not None and self.log is not after:
            raise SessionError(
                "the game moved on while this turn was running; the turn does not count",
                found=f"{self.turns} turns",
                expected=f"{self.omitted_turns + len(after)}",
                do="play one turn of a game at a time",
            )
        self.log += (TurnRecord(instruction.text, prediction.game_state, scene),)
        self.scene = scene
        self.character = self.character.after(prediction.game_state)
        self._shots[self.turns] = prediction.shot.astype(np.float16)
        self._drop_old_shots()

    def rewind(self, turn: int, predict: Predict) -> None:
        """Goes back to just after `turn` (0: the start). Shots that are no longer kept are predicted again.

        Raises SessionError if the turn was not played.
        """
        _check_whole(turn=turn)
        if not 0 <= turn <= self.turns:
            raise SessionError("no such turn to rewind to", found=turn, expected=f"0 to {self.turns}")
        self._need_all_turns("rewind the game")
        shots = self._window_shots(turn, self._shots, predict)
        character = CharacterState()
        for played in self.log[:turn]:
            character = character.after(played.game_state)
        self.log, self.character, self._shots = self.log[:turn], character, shots
        self.scene = self.log[-1].scene if self.log else self.initial_scene

    def branch(self, turn: int, predict: Predict, seed: int | None = None) -> Session:
        """A new game with this one's turns up to `turn`; this game does not change. Raises SessionError as `rewind`."""
        _check_not_negative(seed=self.seed if seed is None else seed)
        other = Session(
            self.bundle_name,
            self.bundle_fingerprint,
            self.seed if seed is None else seed,
            self.history_turns,
            log=self.log,
            character=self.character,
            _shots=dict(self._shots),
            omitted_turns=self.omitted_turns,
            initial_turn=self.initial_turn,
            scene=self.scene,
            initial_scene=self.initial_scene,
        )
        other.rewind(turn, predict)
        return other

    def _window_shots(
        self, turn: int, shots: Mapping[int, npt.NDArray[np.float16]], predict: Predict
    ) -> dict[int, npt.NDArray[np.float16]]:
        """The shots for the prompt after `turn`: the given ones, or else predicted again from the last known window."""
        known = turn
        while any(number not in shots for number in self._window_turns(known)):
            known -= 1
        if (window := range(self._window_turns(known).start, turn + 1)) and window.start <= self.omitted_turns:
            self._need_all_turns(
                "fill the game's history window" if known == turn else "predict the game's shots again"
            )
        filled = {number: shots[number] for number in self._window_turns(known)}
        for number in range(known + 1, turn + 1):
            text = self.log[number - 1 - self.omitted_turns].prompt_text
            filled[number] = predict(self._window(number - 1, filled), Instruction(text)).shot.astype(np.float16)
            filled.pop(number - self.history_turns, None)
        return filled

    def _window_turns(self, turn: int) -> range:
        """The turns whose shots the prompt after `turn` contains."""
        return range(max(1, turn - self.history_turns + 1), turn + 1)

    def _window(self, turns: int, shots: dict[int, npt.NDArray[np.float16]] | None = None) -> tuple[HistoryTurn, ...]:
        shots = self._shots if shots is None else shots
        oldest = max(1, turns - self.history_turns + 1)
        window = self.log[oldest - 1 - self.omitted_turns : turns - self.omitted_turns]
        past = tuple(
            HistoryTurn(turn.prompt_text, turn.game_state, shots[number]) for number, turn in enumerate(window, oldest)
        )
        return (self.initial_turn, *past) if self.initial_turn is not None and turns < self.history_turns else past

    def _drop_old_shots(self) -> None:
        for number in [number for number in self._shots if number <= self.turns - self.history_turns]:
            del self._shots[number]

    def _need_all_turns(self, what: str) -> None:
        if self.omitted_turns:
            raise SessionError(
                f"cannot {what}: its first turns were omitted",
                found=f"turns {self.omitted_turns + 1} to {self.turns}",
                expected="all turns from 1",
            )


def _check_whole(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            found = f"{value!r:.60} ({type(value).__name__})"
            raise SessionError(f"{name} is not a whole number", found=found, expected="a whole number from 0 (int)")


def _check_not_negative(**values: int) -> None:
    _check_whole(**values)
    for name, value in values.items():
        if value < 0:
            raise SessionError(f"{name} is negative", found=value, expected="0 or more")
        if name == "seed" and value >= SEEDS:
            raise SessionError("the seed is too large", found=f"{value.bit_length()} bits", expected="0 to 2**128 - 1")
