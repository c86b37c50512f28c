"""What a game knows without asking the server: the same for `client.Game` and `aio.Game`."""

from __future__ import annotations

from .events import Character
from .responses import RunningTurn, Seen, SessionInfo


class GameInfo:
    """One game. Its `token` is all it takes to continue it later or elsewhere: keep it, and keep it secret."""

    def __init__(self, session: SessionInfo) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<Game {self._session.id}: {self.turns} turns>"

    @property
    def token(self) -> str:
        """The secret that resumes this game."""
        return self._session.token

    @property
    def session(self) -> str:
        """The session's id, as in events."""
        return self._session.id

    @property
    def seed(self) -> int:
        """Seed of the game's noise, 0..2^63-1."""
        return self._session.seed

    @property
    def history_turns(self) -> int:
        """Past turns that the model sees, 0..16."""
        return self._session.history_turns

    @property
    def turns(self) -> int:
        """Number of finished turns."""
        return self._session.turns

    @property
    def character(self) -> Character:
        """The character's values after the last finished turn."""
        return self._session.character

    @property
    def running(self) -> RunningTurn | None:
        """The turn that was running when the game was resumed; `replay` follows it."""
        return self._session.running

    @property
    def seen(self) -> Seen | None:
        """What was recognised in the start picture; None without one, or if nobody was recognised."""
        return self._session.seen
