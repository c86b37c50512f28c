"""A persistent player: retries each turn until it is done, across lost connections and restarted servers.

Speaks the protocol as a client does, and keeps the hash of each finished turn's frames.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zmq

from animegamer_rt.bundle.manifest import World
from animegamer_rt.serving.wire import SERVER_LIMITS, Message, decode, encode

from .schedule import GAME_TURNS, Game, game_seed, games, instruction

SILENCE_S, AGAIN_S, STUCK_S = 8.0, 0.1, 240.0
"""Timeout for a message before the player reconnects (immediately if the connection is closed); wait after a refusal;
timeout for a whole turn."""


class LostError(Exception):
    """The connection, the server or some frames are gone; the turn is requested again."""


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
        self.lost, self.changed, self.asked_again = 0, 0, 0
        self.vanish, self.slow_s = threading.Event(), 0.0
        self.failure: str | None = None
        self._port, self._seed, self._world, self._on_turn, self._stopped = port, seed, world, on_turn, stop
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._session, self._token = "", ""
        self._until = 0.0
        self._abandoned: tuple[Game, str, str] | None = None
        """The first abandoned game, its session and token."""

    def run(self) -> None:
        try:
            for game in games(self.index, self.turns, self.game_turns):
                self._play_game(game)
            if self._abandoned:
                self._replay(*self._abandoned)
        except BaseException as error:  # noqa: BLE001  reported by the main thread
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self._disconnect()

    def _play_game(self, game: Game) -> None:
        self._session = self._token = ""
        for turn in range(1, game.turns + 1):
            if self._stopped.is_set():
                return
            self.played[game, turn] = self._insist(lambda turn=turn: self._turn(game, turn))  # type: ignore[misc]
            self._on_turn()
        self._play_last_again(game)
        if not game.left_open:
            self._insist(lambda: self._close(game))
        elif self._abandoned is None:
            self._abandoned = game, self._session, self._token

    def _replay(self, game: Game, session: str, token: str) -> None:
        """Replays the last turn of a game whose shots may be gone by now."""
        self._session, self._token = session, token
        self._play_last_again(game)

    def _play_last_again(self, game: Game) -> None:
        again = self._insist(lambda: self._turn(game, game.turns))
        self.changed += again != self.played[game, game.turns]

    def _insist(self, action: Callable[[], Any]) -> Any:
        self._until = time.monotonic() + STUCK_S
        while True:
            try:
                return action()
            except LostError as error:
                self.asked_again += 1
                if time.monotonic() > self._until:
                    raise TimeoutError(f"turn not finished after {STUCK_S:g} s; last error: {error}") from error
                time.sleep(AGAIN_S)

    def _turn(self, game: Game, turn: int) -> str:
        """Requests a turn on an open connection; returns the SHA-256 of its frames."""
        self._go_on(game, turn - 1)
        text = instruction(self._world, self._seed, game.script, turn)
        fields = {"instruction": text, "turn_id": f"{game}-{turn}", "token": self._token}
        digest, expected = hashlib.sha256(), 0
        for message in self._answers("turn", fields):
            if message.seq is not None:
                if message.seq != expected or message.turn != turn:
                    self._disconnect()
                    raise LostError(f"event {message.seq} of turn {message.turn} instead of {expected} of {turn}")
                expected += 1
            if message.type == "frame":
                digest.update(message.buffers[0])
                self._suffer()
        return digest.hexdigest()

    def _suffer(self) -> None:
        """Carries out a fault of this client."""
        slow_s, self.slow_s = self.slow_s, 0.0
        time.sleep(slow_s)
        if self.vanish.is_set():
            self.vanish.clear()
            self._disconnect()
            raise LostError("the client vanished")

    def _close(self, game: Game) -> None:
        try:
            self._go_on(game, game.turns)
            self._ask("close", {"token": self._token})
        except LostError as error:
            if not str(error).startswith("session_closed"):  # A lost answer.
                raise

    def _go_on(self, game: Game, heard: int) -> None:
        """Connects and opens the game's session. Fewer turns than were confirmed means that some are lost."""
        if self._context is not None and self._token:
            return
        if self._context is None:
            self._context = zmq.Context()
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.linger = 0
            self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            self._socket.connect(f"tcp://127.0.0.1:{self._port}")
            self._ask("hello", {"versions": [1], "client": "soak", "pixel_format": "rgb24"})
        fields = {"token": self._token} if self._token else {"seed": game_seed(self._seed, game.script)}
        try:
            opened = self._ask("open", fields)
        except LostError:
            self._disconnect()
            raise
        assert opened.session is not None
        self._session, self._token = opened.session, opened.fields["token"]
        if (missing := heard - opened.fields["turns"]) > 0:
            self.lost += missing
            raise RuntimeError(f"game {game}: {missing} of {heard} finished turns are lost")

    def _ask(self, type: str, fields: Mapping[str, Any]) -> Message:
        return list(self._answers(type, fields))[-1]

    def _answers(self, type: str, fields: Mapping[str, Any]) -> Iterator[Message]:
        """Sends a request and yields its answers to the end. Raises LostError."""
        if self._context is None:
            raise LostError("not connected")
        id = uuid.uuid4().hex
        self._socket.send_multipart(encode(Message(type, dict(fields), id, session=self._session or None)))
        poller = zmq.Poller()
        for socket in (self._socket, self._monitor):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(SILENCE_S * 1000)))
            if self._socket not in ready:
                self._disconnect()
                raise LostError("connection closed" if ready else f"no message for {SILENCE_S:g} s")
            message = decode([part.buffer for part in self._socket.recv_multipart(copy=False)], SERVER_LIMITS)
            if message.parent != id:
                continue
            if message.type == "error":
                self._refused(message)
            yield message
            if type != "turn" or message.type == "done":
                return

    def _refused(self, message: Message) -> None:
        code, text = message.fields["code"], message.fields["text"]
        if code in ("unknown_session", "wrong_token", "engines_mismatch", "bundle_mismatch", "bad_field", "protocol"):
            self.lost += code == "unknown_session"
            raise RuntimeError(f"{code}: {text}")
        if code == "hello_first":
            self._disconnect()
        raise LostError(f"{code}: {text}")

    def _disconnect(self) -> None:
        if self._context is not None:
            self._socket.disable_monitor()
            self._context.destroy(linger=0)
        self._context = None
