"""`python -m animegamer_client play`: play a game on a server, from the terminal or from lines on stdin."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from .client import Client, Game, Turn
from .errors import ProtocolError, ServerRefused
from .events import Clip, Done
from .game_folder import GAMES_FOLDER, FolderRefused, GameFolder, new_folder
from .terminal_view import HELP, TerminalView

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""
QUIT = (":quit", ":q", "quit", "exit")


def play(client: Client, seed: int | None, resume: str | None, out: Path | None, key_options: str) -> int:
    """Play until the player leaves; returns the exit code. Raises ClientError, OSError and ValueError.

    seed, out: None: the server or this program chooses. key_options: for the command that continues the game.
    """
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    view = TerminalView(overwrite=sys.stdout.isatty())
    game = client.open(resume=resume) if resume else client.open(seed=seed)
    view.start(client.connect(), client.address, game.character)
    # Before the first turn, so that an unwritable folder costs no turn.
    folder = GameFolder(new_folder(GAMES_FOLDER) if out is None else out, game.token)
    player = Player(client, game, folder, view, key_options)
    view.line(f"seed {game.seed}, {_count(game.turns, 'turn')} so far, in {folder.path}")
    try:
        player.finish_running()
        return player.play_prompt() if interactive else player.play_lines()
    finally:
        player.print_how_to_resume()


class Player:
    """Plays one game: runs commands, shows turns and keeps their clips."""

    def __init__(self, client: Client, game: Game, folder: GameFolder, view: TerminalView, key_options: str) -> None:
        self.client, self.game, self.folder, self.view = client, game, folder, view
        self._key_options = key_options

    def play_prompt(self) -> int:
        """Ask for turns until Ctrl-D, `:quit`, or Ctrl-C at the prompt; returns the exit code."""
        _load_line_editor()
        self.view.line(HELP)
        while True:
            try:
                text = input(f"\nturn {self.game.turns + 1} > ").strip()
            except (EOFError, KeyboardInterrupt):
                self.view.line("")
                return 0
            if text.lower() in QUIT:
                return 0
            try:
                if text:
                    self._run(text)
            except (ServerRefused, ProtocolError, FolderRefused) as error:
                self.view.line(f"error: {error}")
            except KeyboardInterrupt:
                self.view.line(f"stopped; the next turn is turn {self.game.turns + 1}")

    def play_lines(self) -> int:
        """Run each line of stdin as an instruction or a command; returns 1 if one was refused, else 0."""
        refused = False
        try:
            for line in sys.stdin:
                text = line.strip()
                if text.lower() in QUIT:
                    break
                if text and not text.startswith("#"):
                    self.view.line(f"\nturn {self.game.turns + 1} > {text}")
                    try:
                        self._run(text)
                    except (ServerRefused, ProtocolError, FolderRefused) as error:
                        self.view.line(f"error: {error}")
                        refused = True
        except KeyboardInterrupt:
            return INTERRUPTED
        return int(refused)

    def finish_running(self) -> None:
        """Show the turn that was running when the game was resumed, if there was one."""
        running = self.game.running
        if running is not None:
            self.view.line(f"turn {running.turn} is still running")
            self._play(self.game.replay(running.turn))

    def print_how_to_resume(self) -> None:
        """Print the command that continues this game."""
        self.view.line(f"\n{_count(self.game.turns, 'turn')} played; to continue (the token is a secret):")
        self.view.line(
            f"python -m animegamer_client play {self.client.address} --resume {self.game.token} "
            f"--out {shlex.quote(str(self.folder.path))}{self._key_options}"
        )

    def _run(self, text: str) -> None:
        """Run a command, or play a turn."""
        if text[0] not in ":/":  # an instruction never begins with a slash, which must be a mistyped colon
            self._play(self.game.turn(text))
            return
        name, _, rest = text[1:].partition(" ")
        number = int(rest) if re.fullmatch(r"\s*[0-9]{1,9}\s*", rest, re.ASCII) else None
        if name == "rewind" and number is not None:
            turns = self.game.turns
            self.game.rewind(number)
            self.folder.delete_clips(number + 1, turns)
            self._moved()
        elif name == "branch" and number is not None:
            self.game = self.game.branch(number)
            self.folder = GameFolder(new_folder(self.folder.path.parent), self.game.token)
            self._moved()
        elif name == "status" and not rest:
            self.view.status(self.client.status())
        elif name == "export" and not rest:
            exported = self.game.export(lambda done, of: self.view.progress(f"{done} of {of} turns written"))
            self.view.line(f"{_count(len(exported.files), 'file')} in {exported.folder} on the server's machine")
        else:
            self.view.line(HELP)

    def _moved(self) -> None:
        self.view.line(f"after turn {self.game.turns}, in {self.folder.path}")
        self.view.values = self.game.character

    def _play(self, events: Turn) -> None:
        """Show a turn and keep its clip. Ctrl-C cancels the turn."""
        turns, values = self.game.turns, self.view.values
        clip = b""
        try:
            with events:
                for event in events:
                    self.view.event(event)
                    if isinstance(event, Clip):
                        clip += event.data
                    if isinstance(event, Done):
                        self.view.finished(event, self.folder.write_clip(event.turn, clip))
        finally:
            self.view.clear_progress()
            if self.game.turns == turns:  # the turn did not count
                self.view.values = values


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _load_line_editor() -> None:
    """Arrow keys and history at the prompt, where Python has `readline`."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)
