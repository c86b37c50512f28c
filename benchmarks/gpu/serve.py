"""Plays a bundle through `animegamer-rt serve`: two players at once, a cancel, a killed worker.

Every turn's frames are compared with those of the same game undisturbed. A dry run plays simulated engines.
"""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from animegamer_bench.player import ServerProcess
from animegamer_bench.records import series
from animegamer_client import Client, Game, ServerRefused, Turn
from animegamer_client.events import Done, Frame, Progress, Restarting
from animegamer_kernels.library import find_library
from animegamer_rt.bundle.loader import Bundle, open_bundle
from benchmarks.soak.schedule import game_seed, instruction

Entry = dict[str, Any]
START_S, SILENCE_S = 45.0, 30.0
"""Longest wait for the server to start, and for an answer, which may include a worker's restart."""
PLAYERS, SEED = 2, 1
TRIES = 3
"""A turn may end before its cancel or the kill of its worker arrives; then another is tried."""
TOLD_CHARACTERS = 3000


@dataclass(frozen=True, slots=True)
class Played:
    """A finished turn. frames: SHA-256 of their bytes. steps: denoising steps. restarts: of its worker."""

    frames: str
    steps: int
    restarts: int
    seconds: float
    denoiser_seconds: float


def entries(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """One entry per part; an exception becomes an entry with the end of the logs, and the next part runs."""
    started, bundle = time.perf_counter(), open_bundle(job_args["bundle"])
    device = "torch" if job_args["device"] == "cuda" else "simulated:0.05"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        state = Path(folder) / "state"
        try:
            server = ServerProcess(bundle.folder, device, state, job_args["plan"], start_s=START_S)
            with server as served, connect(served) as one, connect(served) as other:
                players = Players(bundle, served, (one, other))
                about = {"size": bundle.manifest.name, "plan": job_args["plan"], "device": device}
                about["kernels"] = device == "torch" and find_library() is not None
                yield {"part": "start", **about, "seconds": round(time.perf_counter() - started, 2), "passed": True}
                for name, answer in parts(players, job_args).items():
                    try:
                        yield {"part": name, **answer(), "at_seconds": round(time.perf_counter() - started, 2)}
                    except Exception:  # noqa: BLE001 any error costs this part only
                        yield {"part": name, "passed": False, "broken": last_output(state) + traceback.format_exc()}
        except Exception:
            print(last_output(state))  # the job's record keeps a failed job's output
            raise


def connect(served: ServerProcess) -> Client:
    """A client of the server; connects inside `with`."""
    return Client(f"tcp://127.0.0.1:{served.port}", timeout_s=SILENCE_S)


def parts(players: Players, job_args: Mapping[str, Any]) -> dict[str, Callable[[], Entry]]:
    """Name -> its function."""
    return {
        "two sessions": partial(players.at_once, job_args["game_turns"]),
        "cancel": partial(players.cancel, job_args["cancels"]),
        "worker killed": players.kill_worker,
    }


def last_output(state: Path) -> str:
    """The last output of the server and its worker."""
    logs = [path for path in (state / "stderr.txt", state / "worker.log") if path.exists()]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace")[-TOLD_CHARACTERS:] for path in logs)


class Players:
    """The players of one server, each with a client and a game that is the same each time it is played."""

    def __init__(self, bundle: Bundle, served: ServerProcess, clients: tuple[Client, Client]) -> None:
        self._world, self._served, self._clients = bundle.manifest.world, served, clients

    def at_once(self, turns: int) -> Entry:
        """Both play a game, first sequentially, then at the same time: the frames must be the same.

        in_a_row: most consecutive turns of one player while the other waited or had finished.
        """
        alone = [list(self._game(player, turns)) for player in range(PLAYERS)]
        order: list[int] = []

        def play_game(player: int) -> list[Played]:
            played = []
            for turn in self._game(player, turns):
                order.append(player)
                played.append(turn)
            return played

        with ThreadPoolExecutor(PLAYERS) as pool:
            together = list(pool.map(play_game, range(PLAYERS)))
        return {
            "turns": PLAYERS * turns,
            "seconds_alone": series(turn.seconds for game in alone for turn in game),
            "seconds_at_once": series(turn.seconds for game in together for turn in game),
            "in_a_row": max(len(list(same)) for _, same in groupby(order)),
            "passed": [[turn.frames for turn in game] for game in together]
            == [[turn.frames for turn in game] for game in alone],
        }

    def cancel(self, wanted: int) -> Entry:
        """Cancels a turn repeatedly at its first denoising step; then plays it, with the same frames.

        steps_after: most steps received after `cancel` was sent, including those in flight.
        """
        (undisturbed,) = self._game(0, 1)
        game = self._open(0)
        tried = (cancelled(self._turn(game, 0, 1), game) for _ in range(TRIES * wanted))
        ended = list(islice(filter(None, tried), wanted))
        played = play(self._turn(game, 0, 1))
        return {
            "cancelled": len(ended),
            "cancel_s": series(seconds for seconds, _ in ended) if ended else None,
            "steps": undisturbed.steps,
            "step_s": round(undisturbed.denoiser_seconds / undisturbed.steps, 5),
            "steps_after": max((steps for _, steps in ended), default=None),
            "passed": len(ended) == wanted and played.frames == undisturbed.frames,
        }

    def kill_worker(self) -> Entry:
        """Kills the worker at the first denoising step of a game's second turn; a new one must give its frames."""
        *_, undisturbed = self._game(0, 2)
        for _ in range(TRIES):
            game = self._open(0)
            play(self._turn(game, 0, 1))
            pid = self._status()["pid"]
            replayed = play(self._turn(game, 0, 2), partial(os.kill, pid, signal.SIGKILL))
            if replayed.restarts:
                break
        return {
            "restarts": replayed.restarts,
            "seconds_undisturbed": round(undisturbed.seconds, 4),
            "seconds_replayed": round(replayed.seconds, 4),
            "frames": replayed.frames,
            "passed": replayed.restarts == 1 and replayed.frames == undisturbed.frames,
        }

    def _game(self, player: int, turns: int) -> Iterator[Played]:
        """A player's game from the start, turn by turn."""
        game = self._open(player)
        for turn in range(1, turns + 1):
            yield play(self._turn(game, player, turn))
        game.close()

    def _open(self, player: int) -> Game:
        return self._clients[player].open(seed=game_seed(SEED, str(player)))

    def _turn(self, game: Game, player: int, turn: int) -> Turn:
        return game.turn(instruction(self._world, SEED, str(player), turn))

    def _status(self) -> Mapping[str, Any]:
        worker: Mapping[str, Any] = self._clients[0].status()["worker"]
        return worker


def play(turn: Turn, at_first_step: Callable[[], object] = lambda: None) -> Played:
    """Plays a turn to its end. Raises ClientError."""
    digest, steps, restarts, denoiser_s, started = hashlib.sha256(), 0, 0, 0.0, time.perf_counter()
    for event in turn:
        if isinstance(event, Progress):
            steps = event.steps
            if event.step == 1 and not restarts:
                at_first_step()
        elif isinstance(event, Frame):
            digest.update(event.data)
        elif isinstance(event, Done):
            denoiser_s = event.seconds.denoiser
        restarts += isinstance(event, Restarting)
    return Played(digest.hexdigest(), steps, restarts, time.perf_counter() - started, denoiser_s)


def cancelled(turn: Turn, game: Game) -> tuple[float, int] | None:
    """Cancels a turn at its first step: seconds until its end, and steps after it; None if it finished first."""
    asked, steps = 0.0, 0
    try:
        for event in turn:
            if isinstance(event, Progress):
                steps += bool(asked)
                if not asked:
                    asked = time.perf_counter()
                    game.cancel()
    except ServerRefused as refused:
        if refused.code != "cancelled":
            raise
        return time.perf_counter() - asked, steps
    game.rewind(0)
    return None
