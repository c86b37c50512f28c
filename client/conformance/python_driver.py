"""The driver of the Python client; with `--aio`, of its asyncio version. README.md describes the commands."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from animegamer_client import (
    Accepted,
    Client,
    ClientError,
    Display,
    Done,
    Event,
    Frame,
    Mode,
    Restarting,
    ServerRefused,
    Understood,
    aio,
)

FNV_OFFSET, FNV_PRIME = 2166136261, 16777619


class Driver:
    """One client, its game, and the running turn."""

    def __init__(self, make: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self._make, self._loop = make, loop
        self._client: Any = None
        self._game: Any = None
        self._turn: Any = None
        self._seen: list[Event] = []
        self._understood = ""
        self._answers: Sequence[Mapping[str, Any]] = ()
        self._token = ""
        self._options = "", 0.0

    def answer(self, line: str) -> str:
        """Carry out one command."""
        name, _, rest = line.partition(" ")
        command = getattr(self, "on_" + name.replace("-", "_"), None)
        try:
            return str(command(rest)) if command is not None else f"error unknown {name}"
        except ClientError as error:
            self._answers = error.answer if isinstance(error, ServerRefused) else ()
            return f"error {error.code} {error}".replace("\n", " ")
        except ValueError as error:
            return f"error bad_argument {error}".replace("\n", " ")

    def on_new(self, rest: str) -> str:
        address, timeout = rest.split(" ")
        self._options = address, float(timeout)
        self._renew()
        return "ok"

    def _renew(self) -> None:
        if self._client is not None:
            self._do(self._client.close())
        address, timeout_s = self._options
        self._client = self._make(address, timeout_s=timeout_s, pixel_format="rgba32")

    def on_connect(self, rest: str) -> str:
        welcome = self._do(self._client.connect())
        return f"ok {welcome.bundle.name} {welcome.state}"

    def on_open(self, seed: str) -> str:
        return self._opened(self._do(self._client.open(seed=int(seed))))

    def on_open_picture(self, rest: str) -> str:
        seed, picture, motion = rest.split(" ", 2)
        answer = self._opened(self._do(self._client.open(seed=int(seed), picture=picture, motion=motion)))
        seen = self._game.seen
        return f"{answer} {seen.text if seen else ''}"

    def on_words(self, rest: str) -> str:
        bundle = self._do(self._client.connect()).bundle
        lists = bundle.people, bundle.motions, bundle.places, bundle.hours, bundle.clothes, bundle.manners
        return " ".join(["ok", *(",".join(words) for words in lists if words)])

    def on_understood(self, rest: str) -> str:
        return f"ok {self._understood}".rstrip()

    def on_answers(self, rest: str) -> str:
        def line(told: Mapping[str, Any]) -> str:
            people, words = (",".join(told.get(name, ())) for name in ("people", "words"))
            return f" {told['code']}:{told.get('value', '')}:{people}:{words}"

        return "ok" + "".join(map(line, self._answers))

    def on_offers(self, rest: str) -> str:
        offers = self._do(self._game.offers())
        return f"ok {len(offers)} {offers[0] if offers else ''}"

    def on_resume(self, token: str) -> str:
        self._renew()
        return self._opened(self._do(self._client.open(resume=token or self._token)))

    def _opened(self, game: Any) -> str:
        self._game, self._token = game, game.token
        return f"ok {game.turns}"

    def on_turn(self, rest: str) -> str:
        turn_id, _, text = rest.partition(" ")
        return self._finish(self._game.turn(text, turn_id=turn_id), [])

    def on_begin(self, rest: str) -> str:
        turn_id, _, text = rest.partition(" ")
        turn = self._game.turn(text, turn_id=turn_id)
        self._seen = [self._next(turn)]
        self._turn = turn
        return "ok"

    def on_rest(self, rest: str) -> str:
        return self._finish(self._turn, self._seen)

    def on_replay(self, rest: str) -> str:
        turn, after_seq = rest.split(" ")
        return self._finish(self._game.replay(int(turn), after_seq=int(after_seq)), [])

    def _next(self, turn: Any) -> Any:
        if self._loop is None:
            return next(turn, None)
        return self._do(anext(turn, None))

    def _finish(self, turn: Any, events: list[Event]) -> str:
        while not (events and isinstance(events[-1], Done)):
            event = self._next(turn)
            if event is None:
                return "error none the turn's events ended without `done`"
            events.append(event)
        self._understood = ""
        for event in events:
            if isinstance(event, Understood):
                notice = f" [{','.join(event.unknown)}] {event.notice}" if event.notice else ""
                self._understood, self._answers = event.text + notice, [asdict(each) for each in event.answer]
        numbers = [event.seq for event in events if not isinstance(event, Restarting | Understood)]
        whole = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        seqs = f"{numbers[0]}-{numbers[-1]}" if whole else ",".join(map(str, numbers))
        frames = [event for event in events if isinstance(event, Frame)]
        hashed = FNV_OFFSET
        for frame in frames:
            for byte in frame.pixels.tobytes():
                hashed = ((hashed ^ byte) * FNV_PRIME) & 0xFFFFFFFF
        replayed = any(isinstance(event, Accepted) and event.replayed for event in events)
        pictures = ",".join(f"{frame.turn}.{frame.index}" for frame in frames)
        about = f"pictures={pictures} hash={hashed:08x} replayed={int(replayed)}"
        return f"done turns={self._game.turns} seq={seqs} {about}"

    def on_wish(self, rest: str) -> str:
        wished = self._do(self._game.wish(text for text in rest.split("|") if text))
        return f"ok {len(wished)} {wished[0] if wished else ''}"

    def on_display(self, rest: str) -> str:
        verb, *words = rest.split(" ")
        if verb == "new":
            self._released: list[str] = []
            self._display = Display[str](float(words[0]), self._released.append)
            self._display.mode, self._display.rest_s = Mode(words[1]), float(words[2])
            self._display.fade_s, self._display.at_once = float(words[3]), len(words) > 4
        elif verb == "add":
            self._display.add(f"{words[0]}.{words[1]}", *map(int, words))
        elif verb == "at":
            shown, released = self._display.advance(float(words[0])), ",".join(self._released) or "-"
            self._released.clear()
            about = f"{shown.blend:g} {shown.turn} {shown.index} {shown.ended} {released}"
            return f"{shown.picture or '-'} {shown.next or '-'} {about}"
        elif verb in ("pause", "go"):
            self._display.paused = verb == "pause"
        else:
            getattr(self._display, verb)()
        return "ok"

    def on_cancel(self, rest: str) -> str:
        return f"ok {int(self._do(self._game.cancel()))}"

    def on_rewind(self, turn: str) -> str:
        self._do(self._game.rewind(int(turn)))
        return f"ok {self._game.turns}"

    def on_branch(self, turn: str) -> str:
        return self._opened(self._do(self._game.branch(int(turn))))

    def on_list(self, rest: str) -> str:
        log = self._do(self._game.log())
        return f"ok {len(log)} {log[-1].instruction if log else ''}"

    def on_end(self, rest: str) -> str:
        self._do(self._game.close())
        return "ok"

    def on_close(self, rest: str) -> str:
        self._do(self._client.close())
        return "ok"

    def _do(self, result: Any) -> Any:
        return self._loop.run_until_complete(result) if self._loop and inspect.isawaitable(result) else result


def main() -> None:
    """Answer each line of standard input."""
    loop = asyncio.new_event_loop() if "--aio" in sys.argv else None
    driver = Driver(aio.Client if loop else Client, loop)
    for line in sys.stdin:
        print(driver.answer(line.rstrip("\n")), flush=True)
    if driver._client is not None:
        driver.answer("close")
    if loop:
        loop.close()


if __name__ == "__main__":
    main()
