"""How a game stands: what `client.Game` and `aio.Game` tell alike, without asking the server.

Knows a seat; it says nothing to anybody.
"""

from __future__ import annotations

from .answers import RunningTurn, Seat
from .events import Character


class Standing:
    """One game. Its `token` is all that is needed to go on with it later, elsewhere: keep it, and keep it secret."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def __repr__(self) -> str:
        return f"<Game {self._seat.session}: {self.turns} turns>"

    @property
    def token(self) -> str:
        """The secret that resumes this game."""
        return self._seat.token

    @property
    def session(self) -> str:
        """The game's id, as events have it."""
        return self._seat.session

    @property
    def seed(self) -> int:
        """Seed of the game's noise."""
        return self._seat.seed

    @property
    def history_turns(self) -> int:
        """Past turns that the model sees."""
        return self._seat.history_turns

    @property
    def turns(self) -> int:
        """Finished turns."""
        return self._seat.turns

    @property
    def character(self) -> Character:
        """The running values after the last finished turn."""
        return self._seat.character

    @property
    def running(self) -> RunningTurn | None:
        """The turn that ran on the server when the game was resumed; follow it with `replay`."""
        return self._seat.running
