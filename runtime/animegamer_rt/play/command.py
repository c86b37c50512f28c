"""`animegamer-rt play`: one game in one process, from a prompt in the terminal or from lines of text.

Opens the game, asks for instructions, and plays the turns. `terminal` shows them, `game_folder` saves them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

from animegamer_rt.api import Game, Player
from animegamer_rt.arguments import Parser, whole
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.files import lock_folder, make_folder
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.engine_config import DEFAULT_CONFIG, EngineConfig, add_bundle_options, add_engine_options
from animegamer_rt.errors import (
    INTERRUPTED,
    AnimeGamerError,
    ConfigError,
    InstructionError,
)
from animegamer_rt.session import Session
from animegamer_rt.stages.image_start import ImageStart, read_image_start

from .game_folder import GameFolder, check_folder, new_folder
from .instructions_file import STDIN, example_script, read_script, stdin_has_lines
from .live import LiveGame, play_live
from .live_screen import live_screen
from .played_game import PlayedGame
from .quiet import QuietWords
from .terminal import Terminal, refuse_command

GAMES_FOLDER = Path("games")


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """Options of `animegamer-rt play`; None: the bundle's or the program's default."""

    bundle: str = "pocket"
    plan: str | None = None
    seed: int | None = None
    out: Path | None = None
    history_turns: int | None = None
    fps: int | None = None
    scale: int | None = None
    instructions: str | None = None
    preview: bool = True
    engines: EngineConfig = DEFAULT_CONFIG
    image: Path | None = None
    motion: str | None = None
    live: bool = False


def add_play(play: argparse.ArgumentParser) -> None:
    """`animegamer-rt play`."""
    play.set_defaults(run=_run)
    add = play.add_argument
    add_bundle_options(play)
    add(
        "--instructions",
        metavar="FILE",
        help="play this file's lines, one turn each, instead of asking; -: standard input; #: a comment",
    )
    add(
        "--seed",
        type=whole(0, 2**63 - 1),
        help="the same bundle, plan, device, seed and instructions give the same frames (default: random)",
    )
    add("--out", type=Path, metavar="DIR", help="folder for the game (default: the next games/game-NNN)")
    add(
        "--history-turns",
        type=whole(0, 64),
        metavar="TURNS",
        help="how many earlier turns the model sees (default: the bundle's)",
    )
    add("--image", type=Path, metavar="FILE", help="start from this picture; needs --motion")
    add("--motion", metavar="TEXT", help="what happens in the picture, for example 'gently wave'")
    add_engine_options(play, simulated=True)
    add("--fps", type=whole(1, 120), help="frames per second of the clips (default: the bundle's)")
    add("--scale", type=whole(1, 16), help="enlarge clips by this factor (default: 4 for pocket, 1 for full size)")
    add(
        "--live",
        action="store_true",
        help="clips follow each other, and the game goes on by itself until you type what happens next",
    )
    add("--no-preview", action="store_false", dest="preview", help="do not show the clip in the terminal")


def _run(options: argparse.Namespace) -> int:
    own = {field.name: getattr(options, field.name) for field in fields(PlayOptions) if field.name != "engines"}
    return play(PlayOptions(**own, engines=EngineConfig.from_arguments(options)))


def open_game(options: PlayOptions, bundle: Bundle) -> PlayedGame:
    """Everything up to the first prompt: folder checked, engines loaded. Raises AnimeGamerError.

    An earlier game in the folder stays until this one's first turn is complete. On failure a new folder is removed.
    """
    plan = bundle.default_plan if options.plan is None else options.plan
    bundle.plan(plan)
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    session = Session.start(bundle, seed=seed, history_turns=options.history_turns)
    start = _read_start(options, bundle, session.history_turns)
    new = options.out is None or not os.path.lexists(options.out)
    out = new_folder(GAMES_FOLDER) if options.out is None else options.out
    try:
        make_folder(out)
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock_folder(out))
            check_folder(out)
            engines = open_engines(bundle, options.engines, plan)
            player = Player(bundle, engines, plan=plan, config=options.engines)
            if start is not None:
                session.start_from(*player.encode_image(start))
            image = None if start is None else {"image": start.name, "caption": start.caption}
            fps = options.fps or bundle.manifest.geometry.fps
            folder = GameFolder(out, bundle.manifest.name, plan, seed, fps, options.scale, image)
            return PlayedGame(Game(player, session), folder, stack.pop_all().close)
    except BaseException:
        if new:
            with contextlib.suppress(OSError):
                out.rmdir()
        raise


def _read_start(options: PlayOptions, bundle: Bundle, history_turns: int) -> ImageStart | None:
    if (options.image is None) != (options.motion is None):
        given, lacking = ("--image", "--motion") if options.motion is None else ("--motion", "--image")
        raise ConfigError(f"{given} needs {lacking} too", expected="--image start.png --motion 'gently wave'")
    if options.image is None or options.motion is None:
        return None
    return read_image_start(bundle, history_turns, options.image, options.motion)


def warm_start(bundle: str, plan: str, out: str, *engine_arguments: str) -> str | None:
    """Do everything up to the first prompt, which `bench` times in a fresh process.

    engine_arguments: as from `EngineConfig.to_args`. Returns the text of a user error, or None.
    """
    parser = Parser()
    add_engine_options(parser)
    try:
        engines = EngineConfig.from_arguments(parser.parse_args(engine_arguments))
        open_game(PlayOptions(bundle, plan, seed=0, out=Path(out), engines=engines), open_bundle(bundle))
    except AnimeGamerError as error:
        return str(error)
    return None


def play(options: PlayOptions) -> int:
    """Play a game until the player quits; returns the exit code. Raises AnimeGamerError for user errors."""
    interactive = options.instructions is None and sys.stdin.isatty() and sys.stdout.isatty()
    bundle = open_bundle(options.bundle, options.engines.width_height)
    if options.live:
        _check_live(interactive, bundle)
    script = [] if interactive else _script(options.instructions, bundle)
    try:
        _play_game(options, bundle, script, interactive)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _play_game(options: PlayOptions, bundle: Bundle, script: list[str], interactive: bool) -> None:
    game = open_game(options, bundle)
    terminal = Terminal(bundle, preview=options.preview and interactive, live=options.live)
    try:
        terminal.opening(game.pipeline.plan_name, game.session.seed, game.folder, interactive)
        if game.pipeline.reader is not None and game.session.initial_scene is not None:
            terminal.picture(game.pipeline.reader.describe(game.session.initial_scene))
        if options.live:
            _live(game, terminal, bundle)
        elif interactive:
            _ask_turns(game, terminal)
        for text in script:
            terminal.instruction(game.next_turn, text)
            try:
                play_or_undo(game, text, terminal)
            except InstructionError as error:
                if error.code not in ("not_understood", "undo"):
                    raise
                terminal.refused(error)  # the lines after it may be played
    finally:
        game.close()
        terminal.closing(game.folder)


def play_or_undo(game: PlayedGame, text: str, terminal: Terminal) -> None:
    """Play a turn; if its text takes the last one back, do that. Raises as `PlayedGame.play_turn`."""
    try:
        game.play_turn(text, terminal)
    except InstructionError as error:
        if error.code != "undo" or not game.session.turns:
            raise
        game.undo()
        terminal.undone(game.next_turn, game.game.character)


def _script(instructions: str | None, bundle: Bundle) -> list[str]:
    if instructions is not None:
        return read_script(instructions)
    return read_script(STDIN) if stdin_has_lines() else example_script(bundle.manifest.world)


def _check_live(interactive: bool, bundle: Bundle) -> None:
    if not interactive:
        raise ConfigError("--live needs a terminal", do="play without --instructions, pipes and redirection")
    if sys.platform == "win32":
        raise ConfigError("--live needs a terminal of Linux or macOS", do="open the game's page: animegamer-rt serve")
    if bundle.manifest.reader is None:
        what = "--live needs a bundle that reads everyday words"
        raise ConfigError(what, found=bundle.manifest.name, do="play pocket, or without --live")


def _live(game: PlayedGame, terminal: Terminal, bundle: Bundle) -> None:
    assert bundle.manifest.reader is not None
    live = LiveGame(game, QuietWords(bundle.manifest.reader, game.session.seed))
    with ThreadPoolExecutor(1) as worker, live_screen(terminal) as screen:
        play_live(live, screen, game.folder.fps, worker)


def _ask_turns(game: PlayedGame, terminal: Terminal) -> None:
    """Ask for turns until the player quits. Ctrl-C stops the turn; at the prompt it ends the game."""
    while True:
        with game.prepared():
            text = terminal.ask(game.next_turn)
        if text is None:
            return
        try:
            refuse_command(text)
            play_or_undo(game, text, terminal)
        except InstructionError as error:
            terminal.refused(error)
        except KeyboardInterrupt:
            terminal.turn_stopped(game.next_turn)


if __name__ == "__main__":  # a fresh process of `bench`, timed from its start to the first prompt
    sys.exit(warm_start(*sys.argv[1:]))
