"""`python -m animegamer_client play`: each line, typed or from stdin, is a turn; its clip goes to a folder."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from .client import Client, Game, Turn
from .errors import ProtocolError, ServerRefused
from .events import VALUES, Accepted, Clip, Done, Event, Progress, Restarting, State, Understood
from .responses import Bundle

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""
GAMES_FOLDER = Path("games")
OF_NOBODY = {".DS_Store", "desktop.ini", "Thumbs.db"}
"""Files that the file managers of macOS and Windows leave in folders they show."""
QUIT = (":quit", ":q", "quit", "exit")


def play(client: Client, seed: int | None, resume: str | None, out: Path | None, key_options: str) -> int:
    """Play until the player leaves; returns the exit code. Raises ClientError, OSError and ValueError.

    seed, out: None: the server or this program chooses. key_options: for the command that continues the game.
    """
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    folder = _clip_folder(out, new_game=resume is None)  # before any turn, so that an unwritable folder costs none
    if interactive:
        print_plain(f"connecting to {client.address}, for {client.timeout_s:g} s at most")
    game = client.open(resume=resume) if resume else client.open(seed=seed)
    bundle = client.connect().bundle
    print_plain(f"{bundle.name} on {client.address}: seed {game.seed}, {game.turns} turns so far, clips in {folder}")
    if bundle.random_weights:
        print_plain("this server only measures time: its pictures are noise")
    code = 0
    try:
        if game.running is not None:
            print_plain(f"turn {game.running.turn} is still running")
            _show(game.replay(game.running.turn), folder)
        for text in _lines(game, bundle, interactive):
            try:
                _show(game.turn(text), folder)
            except (ServerRefused, ProtocolError) as error:
                if error.code == "undo" and game.turns:
                    print_plain(f"  turn {game.turns} is taken back")
                    game.rewind(game.turns - 1)
                    continue
                print_plain(f"{'  ' if error.code == 'not_understood' else 'error: '}{error}")
                code = int(not interactive)
            except KeyboardInterrupt:
                if not interactive:
                    raise
                print_plain(f"stopped; the next turn is turn {game.turns + 1}")
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        turns = f"{game.turns} {'turn' if game.turns == 1 else 'turns'}"
        print_plain(f"\n{turns} played; to continue (the token is a secret):")
        print_plain(
            f"python -m animegamer_client play {client.address} --resume {game.token} "
            f"--out {shlex.quote(str(folder))}{key_options}"
        )
    return code


def print_plain(text: str, end: str = "\n") -> None:
    """Print text of a server or file, over the progress line if there is one."""
    start = "\r\x1b[K" if sys.stdout.isatty() else ""
    print(start + plain(text), end=end, flush=True)


def plain(text: str) -> str:
    """Text made safe for a terminal: cursor movements and reordering characters are escaped, line breaks are kept."""
    return "".join(one if one == "\n" or _shown(one) else one.encode("unicode_escape").decode() for one in text)


def _shown(character: str) -> bool:
    # A joiner between letters is part of words and emoji in many scripts; other format characters are not.
    return character in "\u200c\u200d" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _lines(game: Game, bundle: Bundle, interactive: bool) -> Iterator[str]:
    """The player's sentences, until the end of the input, `:quit`, or Ctrl-C at the prompt."""
    if interactive:
        with contextlib.suppress(ImportError):  # arrow keys and history, where Python has it
            import readline  # noqa: F401
        for name in ("people", "motions", "places"):
            if words := getattr(bundle, name):
                print_plain(f"{name:<9}{', '.join(words)}")
        print("Say who does what and where. undo takes the last turn back, Ctrl-C stops a turn;")
        print("at the prompt, Ctrl-C or Ctrl-D leaves the game.")
    while True:
        prompt = f"\nturn {game.turns + 1} > "
        if interactive:
            try:
                text = input(prompt).strip()
            except (EOFError, KeyboardInterrupt):
                print()
                return
        else:
            line = sys.stdin.readline()
            if not line:
                return
            text = line.strip()
        if text.lower() in QUIT:
            return
        if text and not text.startswith("#"):
            if not interactive:
                print_plain(prompt + text)
            yield text


def _show(turn: Turn, folder: Path) -> None:
    """Print a turn's events and keep its clip. Ctrl-C cancels the turn."""
    clip = b""
    with turn:
        for event in turn:
            if isinstance(event, Clip):
                clip += event.data
            elif isinstance(event, Done):
                path = _write_clip(folder, event.turn, clip)
                print_plain(f"  {path}  ({event.seconds.total:.2f} s)")
            elif (text := _as_text(event)) is not None:
                print_plain(f"  {text}")
            elif isinstance(event, Progress) and sys.stdout.isatty():
                print_plain(f"  step {event.step} of {event.steps}, {event.seconds_left:.1f} s left", end="")


def _as_text(event: Event) -> str | None:
    if isinstance(event, Accepted) and event.place:
        return f"position {event.place} in the queue, about {event.estimate_s:.0f} s"
    if isinstance(event, Understood):
        return f"understood: {event.text}" + ("" if event.notice is None else f"\n  {event.notice}")
    if isinstance(event, State):
        values = ", ".join(f"{name} {getattr(event.shown, name)}" for name in VALUES)
        return f"motion level {event.motion_level}, {values}"
    if isinstance(event, Restarting):
        return f"the worker died and restarts in {event.retry_in_s:.1f} s; the turn then continues"
    return None


def _clip_folder(out: Path | None, new_game: bool) -> Path:
    """The folder for the clips, which is made. A new game gets an empty one, so that it overwrites no other game."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        if new_game and (others := sorted(set(os.listdir(out)) - OF_NOBODY)):
            raise ValueError(f"{out} holds other files, such as {others[0]}; choose another folder with --out")
        return out
    number = 1
    while True:
        with contextlib.suppress(FileExistsError):
            (GAMES_FOLDER / f"game-{number:03d}").mkdir(parents=True)
            return GAMES_FOLDER / f"game-{number:03d}"
        number += 1


def _write_clip(folder: Path, turn: int, data: bytes) -> Path:
    """Write a turn's mp4 atomically and return its path: other programs see the whole file or none."""
    path = folder / f"turn-{turn:03d}.mp4"
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
