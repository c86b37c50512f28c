"""`python -m animegamer_client play`: a game on a server, asked for turn by turn on a terminal or read from stdin.

Knows the order of things. What it looks like is `screen`'s, what is kept is `album`'s.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from .album import GAMES, Album, next_folder
from .client import Client, Game, Turn
from .errors import ProtocolError, ServerRefused
from .events import Done
from .screen import HELP, Screen

INTERRUPTED = 130
QUIT = (":quit", ":q", "quit", "exit")


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """What `play` was asked for; None leaves the choice to the server or to the program."""

    address: str
    seed: int | None = None
    resume: str | None = None
    out: Path | None = None
    timeout_s: float = 30.0
    server_key: str | None = None
    client_keys: str | None = None


def play(options: PlayOptions) -> int:
    """Play until the player has had enough; returns the exit code. Raises ClientError, OSError and ValueError."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    screen = Screen()
    with Client(
        options.address,
        timeout_s=options.timeout_s,
        clip=True,
        server_key=options.server_key,
        client_keys=options.client_keys,
    ) as client:
        game = client.open(seed=options.seed) if options.resume is None else client.open(resume=options.resume)
        screen.opening(client.connect(), client.address, game.character)
        album = Album(options.out or next_folder(GAMES))
        album.begin()  # a folder that cannot be written is said before any turn
        player = Player(client, game, album, screen, _key_options(options))
        screen.say(f"seed {game.seed}, {_many(game.turns, 'turn')} so far, in {player.album.folder}")
        try:
            player.finish_running()
            return player.ask_turns() if interactive else player.read_turns()
        finally:
            player.say_how_to_resume()


class Player:
    """One player at the table."""

    def __init__(self, client: Client, game: Game, album: Album, screen: Screen, key_options: str = "") -> None:
        self.client, self.game, self.album, self.screen = client, game, album, screen
        self._key_options = key_options

    def ask_turns(self) -> int:
        """Ask for turns until Ctrl-D, `:quit`, or Ctrl-C at the prompt."""
        _edit_lines()
        self.screen.say(HELP, "dim")
        while True:
            try:
                text = input(f"\nturn {self.game.turns + 1} > ").strip()
            except (EOFError, KeyboardInterrupt):
                self.screen.say("")
                return 0
            if text.lower() in QUIT:
                return 0
            try:
                if text:
                    self._do(text)
            except (ServerRefused, ProtocolError) as error:
                self.screen.error(error)
            except KeyboardInterrupt:
                self.screen.say(f"stopped; the next turn is turn {self.game.turns + 1}", "dim")

    def read_turns(self) -> int:
        """Take each line of stdin as an instruction or command; 1 if one was refused."""
        refused = False
        try:
            for line in sys.stdin:
                text = line.strip()
                if text.lower() in QUIT:
                    break
                if text and not text.startswith("#"):
                    self.screen.say(f"\nturn {self.game.turns + 1} > {text}")
                    try:
                        self._do(text)
                    except (ServerRefused, ProtocolError) as error:
                        self.screen.error(error)
                        refused = True
        except KeyboardInterrupt:
            return INTERRUPTED
        return int(refused)

    def finish_running(self) -> None:
        """See the turn to its end that was running when the game was resumed."""
        running = self.game.running
        if running is not None:
            self.screen.say(f"turn {running.turn} is still running")
            self._watch(self.game.replay(running.turn))

    def say_how_to_resume(self) -> None:
        """The last lines: where everything is, and how to go on."""
        self.screen.say("")
        if self.album.sheet.exists():
            self.screen.say(f"contact sheet: {self.album.sheet}")
        self.screen.say(f"{_many(self.game.turns, 'turn')} played; to go on (the token is a secret):", "bold")
        self.screen.say(
            f"python -m animegamer_client play {self.client.address} --resume {self.game.token} "
            f"--out {shlex.quote(str(self.album.folder))}{self._key_options}"
        )

    def _do(self, text: str) -> None:
        """Follow a command, or play a turn."""
        if text[0] not in ":/":  # a slash is a slip for a colon, and must not cost a turn
            self._watch(self.game.turn(text))
            return
        name, _, rest = text[1:].partition(" ")
        number = int(rest) if rest.strip().isdigit() else None
        if name in ("rewind", "branch") and number is not None:
            self._go_back(name, number)
        elif name == "status" and not rest:
            self.screen.status(self.client.status())
        elif name == "export" and not rest:
            exported = self.game.export(lambda done, of: self.screen.progress(f"{done} of {of} turns written"))
            files = _many(len(exported.files), "file")
            self.screen.say(f"{files} in {exported.folder} on the server's machine")
        else:
            self.screen.say(HELP, "dim")

    def _watch(self, events: Turn) -> None:
        """Show a turn and keep it. An interrupt cancels it, on the server too."""
        self.album.begin()
        turns, values = self.game.turns, self.screen.values
        try:
            with events:
                for event in events:
                    self.screen.show(event)
                    self.album.keep(event)
                    if isinstance(event, Done):
                        self.screen.finished(event, self.album.finish(event.turn))
        finally:
            self.screen.ended()
            if self.game.turns == turns:
                self.screen.values = values

    def _go_back(self, name: str, turn: int) -> None:
        if name == "rewind":
            played = self.game.turns
            self.game.rewind(turn)
            self.album.rewind(turn, played)
        else:
            self.game, self.album = self.game.branch(turn), self.album.branch(turn)
        self.screen.say(f"after turn {self.game.turns}, in {self.album.folder}")
        self.screen.values = self.game.character


def _key_options(options: PlayOptions) -> str:
    """The keys, as they stand on the command line."""
    named = (("--server-key", options.server_key), ("--client-keys", options.client_keys))
    return "".join(f" {name} {shlex.quote(value)}" for name, value in named if value is not None)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _edit_lines() -> None:
    """Arrow keys and history at the prompt, where the system has a line editor."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)
