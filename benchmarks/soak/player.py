"""A persistent player: plays each turn until it is done, across lost connections and restarted servers.

It is the Python client, and keeps the hash of each finished turn's frames.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

from animegamer_client import Client, ClientError, ConnectionLost, Done, Frame, ServerRefused
from animegamer_rt.bundle.manifest import World

from .schedule import GAME_TURNS, Game, game_seed, games, instruction

SILENCE_S, AGAIN_S, STUCK_S = 8.0, 0.1, 240.0
"""Time without an answer after which the player connects anew; wait after a refusal; timeout for a whole turn."""


class Player(threading.Thread):
    """Plays `turns` turns, in games of `game_turns`; `played` has the SHA-256 of each turn's frames.

    stop: once set, no further turn is requested. One of ABANDONED games is left open: its shots stay in the store until
    the quota reclaims them. vanish, slow_s: set by a fault: close the connection in the middle of a turn; stop reading
    for this long.
    """

    def __init__(
        self,
        index: int,
        port: int,
        seed: int,
        world: World,
        turns: int,
        on_turn: Callable[[], None],
        stop: threading.Event,
        game_turns: int = GAME_TURNS,
    ) -> None:
        super().__init__(name=f"player {index}", daemon=True)
        self.index, self.turns, self.game_turns = index, turns, game_turns
        self.played: dict[tuple[Game, int], str] = {}
        self.took: list[tuple[float, float]] = []
        """When a turn was sent for the first time (monotonic), and seconds until it was done."""
        self.lost, self.changed, self.asked_again = 0, 0, 0
        self.vanish, self.slow_s = threading.Event(), 0.0
        self.failure: str | None = None
        self._port, self._seed, self._world, self._on_turn, self._stopped = port, seed, world, on_turn, stop
        self._client: Client | None = None
        self._open: Any = None
        """The client's game, while it is connected."""
        self._token: str | None = None
        self._abandoned: tuple[Game, str | None] | None = None
        """The first abandoned game, and its token."""

    def run(self) -> None:
        try:
            for game in games(self.index, self.turns, self.game_turns):
                self._play_game(game)
            if self._abandoned:
                game, self._token = self._abandoned
                self._open = None
                self._play_last_again(game)  # its shots may be gone by now
        except BaseException as error:  # noqa: BLE001  reported by the main thread
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self._disconnect()

    def _play_game(self, game: Game) -> None:
        self._open = self._token = None
        for turn in range(1, game.turns + 1):
            if self._stopped.is_set():
                return
            sent_at = time.monotonic()
            self.played[game, turn] = self._insist(lambda turn=turn: self._turn(game, turn))  # type: ignore[misc]
            self.took.append((sent_at, time.monotonic() - sent_at))
            self._on_turn()
        self._play_last_again(game)
        if not game.left_open:
            self._insist(lambda: self._close(game))
        elif self._abandoned is None:
            self._abandoned = game, self._token

    def _play_last_again(self, game: Game) -> None:
        again = self._insist(lambda: self._turn(game, game.turns))
        self.changed += again != self.played[game, game.turns]

    def _insist(self, action: Callable[[], Any]) -> Any:
        until = time.monotonic() + STUCK_S
        while True:
            try:
                return action()
            except ClientError as error:
                self.asked_again += 1
                if time.monotonic() > until:
                    raise TimeoutError(f"turn not finished after {STUCK_S:g} s; last error: {error}") from error
                if not isinstance(error, ServerRefused):
                    self._disconnect()
                time.sleep(AGAIN_S)

    def _turn(self, game: Game, turn: int) -> str:
        """Plays a turn, or again one that was played; returns the SHA-256 of its frames."""
        self._connect(game, turn - 1)
        text = instruction(self._world, self._seed, game.script, turn)
        digest = hashlib.sha256()
        for event in self._open.turn(text, turn_id=f"{game}-{turn}"):
            if isinstance(event, Frame):
                digest.update(event.pixels.data)
                self._suffer()
            if isinstance(event, Done) and event.turn != turn:
                self._lose(turn - event.turn, f"turn {turn} of game {game} is turn {event.turn} of the server")
        return digest.hexdigest()

    def _suffer(self) -> None:
        """Carries out a fault of this client."""
        slow_s, self.slow_s = self.slow_s, 0.0
        time.sleep(slow_s)
        if self.vanish.is_set():
            self.vanish.clear()
            self._disconnect()
            raise ConnectionLost("the client vanished")

    def _close(self, game: Game) -> None:
        try:
            self._connect(game, game.turns)
            self._open.close()
        except ServerRefused as error:
            if error.code != "session_closed":  # its answer was lost
                raise

    def _connect(self, game: Game, heard: int) -> None:
        """Connects and opens the game's session. Fewer turns than were confirmed means that some are lost."""
        if self._open is not None:
            return
        if self._client is None:
            self._client = Client(f"tcp://127.0.0.1:{self._port}", timeout_s=SILENCE_S)
        seed = game_seed(self._seed, game.script)
        self._open = self._client.open(seed=seed) if self._token is None else self._client.open(resume=self._token)
        self._token = self._open.token
        if (missing := heard - self._open.turns) > 0:
            self._lose(missing, f"{missing} of {heard} finished turns of game {game} are gone")

    def _lose(self, turns: int, what: str) -> None:
        self.lost += turns
        raise RuntimeError(what)

    def _disconnect(self) -> None:
        client, self._client, self._open = self._client, None, None
        if client is not None:
            client.close()
