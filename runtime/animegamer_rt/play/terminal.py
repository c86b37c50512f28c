"""A game in the terminal: prompt, state bars, progress bar, clip; or plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from animegamer_rt import events
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS
from animegamer_rt.errors import AnimeGamerError, InstructionError
from animegamer_rt.stages.image import Picture
from animegamer_rt.state.game import VALUES, CharacterState
from animegamer_rt.untrusted import plain

from .block_picture import BlockPicture, shows_pictures
from .game_folder import GameFolder

BAR_CELLS = 20
COLOURS = dict(zip(VALUES, ("red", "magenta", "yellow"), strict=True))
QUIT, HELP, UNDO = ("quit", "exit", "/quit", "/exit"), ("help", "?", "/help"), ("undo", "/undo")
# In the C locale GNU readline would treat non-ASCII letters as commands and lose them.
READLINE = ("set input-meta on", "set output-meta on", "set convert-meta off")


def refuse_command(text: str) -> None:
    """Raise InstructionError for a mistyped command, which must not be played as a turn."""
    if text[0] in "/:" and text.lower() not in UNDO:
        raise InstructionError("no such command", found=repr(text.split()[0]), expected="help, undo or quit")


class Terminal:
    """Shows one game. `preview`: play each finished clip in the terminal, if it supports the colours and characters.

    live: the game goes on by itself.
    """

    def __init__(self, bundle: Bundle, preview: bool, console: Console | None = None, live: bool = False) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._bundle, self._live = bundle, live
        self.preview = preview and self.console.is_terminal and shows_pictures(self.console)
        self._full, self._empty = "#." if self.console.options.ascii_only else "█░"
        self._character = self._next_character = CharacterState()
        self._vae_seconds = 0.0
        self._frames: list[Picture] = []
        _edit_lines()

    def opening(self, plan: str, seed: int, folder: GameFolder, interactive: bool) -> None:
        """Print what is played and where it is saved."""
        manifest, geometry = self._bundle.manifest, self._bundle.manifest.geometry
        self._print(
            f"{manifest.name}: turns of {geometry.frames} frames, {geometry.width} x {geometry.height}; "
            f"plan {plan}, seed {seed}, in {folder.folder}",
            "bold",
        )
        if manifest.origin == RANDOM_WEIGHTS:
            self._print("random weights: only for measuring time and memory; the pictures are noise", "bold red")
        if folder.replaced:
            self._print("the game in this folder is replaced once a turn of this one is finished", "yellow")
        if interactive:
            self._print("")
            self.help()

    def picture(self, seen: str) -> None:
        self.console.print(Text.assemble("\n", ("in the picture: ", "cyan"), seen))

    def help(self) -> None:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        world, reader = self._bundle.manifest.world, self._bundle.manifest.reader
        for name, words in {
            "characters": world.characters,
            "motions": world.motions,
            "how": world.adverbs,
            "places": world.places,
            "clothes": () if reader is None else reader.clothes_words,
        }.items():
            if words:
                table.add_row(Text(name, "cyan"), Text(plain(", ".join(words))))
        if world.examples:
            sentences = [example for example in world.examples if ":" not in example]
            example = max(sentences or world.examples[:1], key=len)  # the longest has who, what and where
            table.add_row(Text("for example", "cyan"), Text(plain(example), "italic"))
        self.console.print(table, soft_wrap=False)
        keys = "The game goes on by itself; Ctrl-C ends it" if self._live else "Ctrl-C stops a turn"
        keys += ", undo takes the last one back, help shows this, quit ends the game."
        self._print(f"Type who does what where. {keys}", "dim", prose=True)

    def ask(self, turn: int) -> str | None:
        """The next instruction; None when the player quits. Raises KeyboardInterrupt on Ctrl-C."""
        while True:
            self._print("")
            prompt = f"turn {turn} > "
            try:
                text = input(prompt).strip()
            except EOFError:
                self._print("")
                return None
            if text.lower() in QUIT:
                return None
            if text.lower() in HELP:
                self.help()
            elif text:
                return text

    def instruction(self, turn: int, text: str) -> None:
        self._print(f"\nturn {turn} > {text}")

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """While a turn runs, a progress bar: `show` its events as they come."""
        self._frames = []
        self._bar = ProgressBar(
            TextColumn("{task.description}"),
            BarColumn(40),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("thinking", total=None, left="")
        with self._bar:
            yield

    def show(self, event: events.Event) -> None:
        """Show an event of the running turn, or keep its frame for the preview."""
        match event:
            case events.Understood():
                self._print(Text.assemble("  ", ("understood: ", "cyan"), event.text), prose=True)
                if event.notice is not None:
                    self._print(f"  {event.notice}", "yellow", prose=True)
            case events.StatePredicted():
                self._state(event)
            case events.Progress():
                decoding = event.step == event.steps
                # The time of decoding is known after the first turn of the game.
                known = self._vae_seconds or not decoding
                left = f"{event.seconds_left + self._vae_seconds:.1f} s left" if known else ""
                word = "decoding" if decoding else "drawing"
                self._bar.update(self._task, description=word, completed=event.step, total=event.steps, left=left)
            case events.FrameReady() if self.preview:
                self._frames.append(event.frame)

    def _state(self, event: events.StatePredicted) -> None:
        """The motion level, and the character's three values with their change."""
        now = event.shown
        self.console.print(Text.assemble("  ", (f"{'motion level':<15}", "cyan"), f"{event.game_state.motion_level}"))
        for name, colour in COLOURS.items():
            value, before = getattr(now, name), getattr(self._character, name)
            full = round(value / 100 * BAR_CELLS)
            change = f"{value - before:+d}" if value != before else " ="
            self.console.print(
                Text.assemble(
                    "  ",
                    (f"{name:<15}", "cyan"),
                    (self._full * full, colour),
                    (self._empty * (BAR_CELLS - full), "dim"),
                    f" {value:>3}  ",
                    (change, "green" if value > before else "red" if value < before else "dim"),
                )
            )
        self._next_character = now

    def finished(self, clip: Path, seconds: events.StageSeconds, playback_seconds: float) -> None:
        """Show the clip, its path and the seconds of each stage. Ctrl-C only ends the preview; the turn is kept."""
        self._vae_seconds, self._character = seconds.vae, self._next_character
        if self._frames:
            with contextlib.suppress(KeyboardInterrupt):
                _show_clip(self.console, self._frames, playback_seconds)
        stages = f"predictor {seconds.predictor:.2f}, denoiser {seconds.denoiser:.2f}, vae {seconds.vae:.2f}"
        line = f"  {clip}  ({playback_seconds:.1f} s of play in {seconds.total:.2f} s: {stages})"
        self._print(line, "dim", prose=True)

    def refused(self, error: AnimeGamerError) -> None:
        lead, style = ("  ", "yellow") if error.code in ("not_understood", "undo") else ("error: ", "red")
        self._print(f"{lead}{error}", style, prose=True)

    def undone(self, turn: int, character: CharacterState) -> None:
        """The last turn was taken back: the next one is `turn` again."""
        self._character = character
        self._print(f"  turn {turn} is taken back", "yellow")

    def turn_stopped(self, turn: int) -> None:
        self._print(f"stopped; the next turn is turn {turn}", "yellow")

    def closing(self, folder: GameFolder) -> None:
        self._print("")
        if turns := folder.turns:
            self._print(f"{turns} {'turn' if turns == 1 else 'turns'}: clips and game.json in {folder.folder}", "bold")
            self._print(f"contact sheet: {folder.sheet_path}")
            self._print(f"game record:   {folder.game_path}")
        else:
            self._print("no turn was finished")

    def _print(self, text: str | Text, style: str = "", prose: bool = False) -> None:
        """prose: break lines between words, which a terminal itself does not. Not for what is copied, such as paths."""
        text = text if isinstance(text, Text) else Text(plain(text, lines=True), style)
        self.console.print(text, soft_wrap=not (prose and self.console.is_terminal))


def _show_clip(console: Console, frames: Sequence[Picture], seconds: float) -> None:
    """Play the frames once, within `seconds`; the last one stays."""
    with Live(console=console, auto_refresh=False) as live:
        start = time.monotonic()
        for number, frame in enumerate(frames, 1):
            live.update(BlockPicture(frame), refresh=True)
            time.sleep(max(0.0, start + number * seconds / len(frames) - time.monotonic()))


def _edit_lines() -> None:
    """Give `input` line editing and a history, if the system has a line editor."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(ImportError):
        import readline

        for setting in READLINE if "libedit" not in (readline.__doc__ or "") else ():
            readline.parse_and_bind(setting)
