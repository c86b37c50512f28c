"""Play AnimeGamer games on a server: `Client`, its games, and a turn as typed events. `aio` has the asyncio twin."""

from .answers import Bundle, Exported, LoggedTurn, RunningTurn, Welcome
from .client import Client, Game, Turn
from .errors import ClientError, ConnectionLost, ProtocolError, ServerRefused, TimedOut
from .events import (
    Accepted,
    Character,
    Clip,
    Done,
    Event,
    Frame,
    Preview,
    Progress,
    Restarting,
    Seconds,
    State,
)

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Bundle",
    "Character",
    "Client",
    "ClientError",
    "Clip",
    "ConnectionLost",
    "Done",
    "Event",
    "Exported",
    "Frame",
    "Game",
    "LoggedTurn",
    "Preview",
    "Progress",
    "ProtocolError",
    "Restarting",
    "RunningTurn",
    "Seconds",
    "ServerRefused",
    "State",
    "TimedOut",
    "Turn",
    "Welcome",
]
