"""Play games on an AnimeGamer server: `Client`, its games, and a turn as typed events. `aio` is for asyncio."""

from .client import Client, Game, Turn
from .display import Display, Mode, Shown
from .errors import ClientClosed, ClientError, ConnectionLost, ProtocolError, ServerRefused, TimedOut
from .events import (
    Accepted,
    Character,
    Clip,
    Done,
    Event,
    Frame,
    Person,
    Progress,
    Restarting,
    Seconds,
    State,
    Understood,
)
from .responses import Bundle, Exported, LoggedTurn, RunningTurn, Seen, Welcome

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Bundle",
    "Character",
    "Client",
    "ClientClosed",
    "ClientError",
    "Clip",
    "ConnectionLost",
    "Display",
    "Done",
    "Event",
    "Exported",
    "Frame",
    "Game",
    "LoggedTurn",
    "Mode",
    "Person",
    "Progress",
    "ProtocolError",
    "Restarting",
    "RunningTurn",
    "Seconds",
    "Seen",
    "ServerRefused",
    "Shown",
    "State",
    "TimedOut",
    "Turn",
    "Understood",
    "Welcome",
]
