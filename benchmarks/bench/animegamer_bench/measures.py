"""The measurements, one function each: from a running server to figures with median, 95th percentile and count.

Knows players and what figures mean; nothing of how servers are started or how figures are shown.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import zmq

from animegamer_rt.profiling.percentiles import percentiles

from .player import Player, TurnTiming, play_together
from .recording import Recording
from .server_process import DROPPED, ServerProcess

WINDOW_FULL = 5
"""Turns after which a game's history window is full, in every bundle so far."""
STALLED_ROUNDS = 4
"""Fewest turns measured beside a player who reads, and beside one who does not."""
MAX_BUFFERED = 20
"""Most turns until frames are dropped for a player who does not read: the send queue and sockets hold some."""
CONNECTIONS = 100

Figures = dict[str, Any]


def series(values: Iterable[float]) -> Figures:
    """Median, 95th percentile (None of fewer than 20), longest and how many there were."""
    raw = list(values)
    return {**percentiles(raw, (50, 95)), "n": len(raw)}


def overhead(context: zmq.Context[zmq.Socket[bytes]], served: ServerProcess, turns: int) -> Figures:
    """One player with raw frames: seconds of a turn beyond its engines, and when its first events come."""
    with Player(context, served.port) as player:
        player.open()
        for _ in range(WINDOW_FULL):
            player.play()
        played = [player.play() for _ in range(turns)]
    return {
        "overhead_s": series(turn.overhead_s for turn in played),
        "outside_s": series(turn.outside_s for turn in played),
        "turn_s": series(turn.turn_s for turn in played),
        "state_s": series(turn.state_s for turn in played),
        "state_overhead_s": series(turn.state_overhead_s for turn in played),
        "first_frame_s": series(turn.first_frame_s for turn in played),
    }


def idle(context: zmq.Context[zmq.Socket[bytes]], served: ServerProcess, seconds: float) -> Figures:
    """The share of a core that the server process uses while one player is connected and plays nothing."""
    with Player(context, served.port) as player:
        player.open()
        player.play()
        return {"player": "reads", **_processor_share(served, seconds)}


def transfer(context: zmq.Context[zmq.Socket[bytes]], served: ServerProcess, codec: str, turns: int) -> Figures:
    """One player: seconds from the end of denoising to the last byte of the clip; vae_s: the engine's part of it."""
    with Player(context, served.port, codec=codec) as player:
        player.open()
        player.play()
        played = [player.play() for _ in range(turns)]
    return {
        "codec": codec,
        "clip_s": series(turn.clip_s for turn in played),
        "vae_s": series(turn.seconds["vae"] for turn in played),
        "bytes": round(statistics.median(turn.bytes for turn in played)),
    }


def cancelling(context: zmq.Context[zmq.Socket[bytes]], served: ServerProcess, turns: int) -> Figures:
    """Seconds from `cancel`, sent while a turn is denoised, to its end. done_first: turns done before it came."""
    with Player(context, served.port) as player:
        player.open(history_turns=0)
        player.play()
        waited = [player.cancel() for _ in range(turns)]
    ended = [seconds for seconds in waited if seconds is not None]
    return {"cancel_s": series(ended) if ended else None, "done_first": len(waited) - len(ended)}


def concurrent_players(
    context: zmq.Context[zmq.Socket[bytes]],
    servers: Sequence[ServerProcess],
    sessions: int,
    turns: int,
    deadline_s: float,
) -> Figures:
    """`sessions` players at once, each `turns` turns without a pause or a history, so that turns of a plan cost alike.

    servers: the players are shared out among them. deadline_s: how long a clip plays; a turn that takes longer leaves
    its player waiting.
    """
    players = [Player(context, servers[number % len(servers)].port) for number in range(sessions)]
    try:
        for player in players:
            player.open(history_turns=0)
        for player in players[: len(servers)]:
            player.play()
        played = play_together(players, turns)
    finally:
        for player in players:
            player.socket.close()
    between = np.diff([turn.done_at for turn in played])
    engines = statistics.fmean(turn.engines_s for turn in played[1:])
    return {
        "sessions": sessions,
        "interval_s": series(between),
        "turns_per_s": round(1 / float(between.mean()), 4),
        "turn_s": series(turn.turn_s for turn in played),
        "state_s": series(turn.state_s for turn in played),
        "first_frame_s": series(turn.first_frame_s for turn in played),
        "deadline_s": deadline_s,
        "goodput": round(statistics.fmean(turn.turn_s <= deadline_s for turn in played), 4),
        "engines_busy": round(engines / float(between.mean()), 4),
    }


def recorded(
    context: zmq.Context[zmq.Socket[bytes]], served: ServerProcess, recording: Recording, deadline_s: float
) -> Figures:
    """One player who plays a recorded session, and thinks as long before each turn as was recorded.

    The engines are idle meanwhile, as between the turns of a person. deadline_s: as in `concurrent_players`.
    """
    played: list[TurnTiming] = []
    with Player(context, served.port) as player:
        player.open()
        for turn in recording.turns:
            time.sleep(turn.think_s)
            played.append(player.play(turn.instruction))
    thought_s = sum(turn.think_s for turn in recording.turns)
    return {
        "recording": recording.name,
        "sha256": recording.sha256,
        "think_s": series(turn.think_s for turn in recording.turns),
        "state_s": series(turn.state_s for turn in played),
        "first_frame_s": series(turn.first_frame_s for turn in played),
        "turn_s": series(turn.turn_s for turn in played),
        "deadline_s": deadline_s,
        "goodput": round(statistics.fmean(turn.turn_s <= deadline_s for turn in played), 4),
        "engines_busy": round(
            sum(turn.engines_s for turn in played) / (thought_s + sum(turn.turn_s for turn in played)), 4
        ),
    }


def slow_reader(
    context: zmq.Context[zmq.Socket[bytes]], served: ServerProcess, turns: int, idle_s: float
) -> tuple[Figures, Figures]:
    """A player's turns, each after a turn of another player: first one who reads, then one who does not.

    Also returns the share of a core that the server process uses afterwards, while frames wait for the latter.
    """
    rounds = max(STALLED_ROUNDS, turns)
    with Player(context, served.port) as well, Player(context, served.port) as reader:
        well.open(history_turns=0)
        reader.open(history_turns=0)
        beside_reader = [_behind(well, reader, reads=True) for _ in range(rounds)]
        with Player(context, served.port, stalled=True) as staller:
            staller.open(history_turns=0)
            for _ in range(MAX_BUFFERED):  # what the sockets' own buffers hold comes before the first frame is dropped
                if served.metric(DROPPED):
                    break
                _behind(well, staller, reads=False)
            beside_stalled = [_behind(well, staller, reads=False) for _ in range(rounds)]
            idle_beside_stalled = {"player": "has stopped reading", **_processor_share(served, idle_s)}
        dropped = served.metric(DROPPED)
    times = {
        "beside_reader_s": series(turn.turn_s for turn in beside_reader),
        "beside_stalled_s": series(turn.turn_s for turn in beside_stalled),
    }
    ratio = times["beside_stalled_s"]["p50"] / times["beside_reader_s"]["p50"]
    return {**times, "ratio": round(ratio, 4), "frames_dropped": int(dropped or 0)}, idle_beside_stalled


def memory(context: zmq.Context[zmq.Socket[bytes]], served: ServerProcess, sessions: int) -> Figures:
    """Memory of the server process for idle sessions with one finished turn each, and for connections after hello."""
    with Player(context, served.port) as player:
        for _ in range(2 * WINDOW_FULL):
            player.open()
            player.play()
        before = served.resident_mib()
        for _ in range(sessions):
            player.open()
            player.play()
        after = served.resident_mib()
    idle = [Player(context, served.port) for _ in range(CONNECTIONS)]
    connected = served.resident_mib()
    for player in idle:
        player.socket.close()
    figures: Figures = {"sessions": sessions, "connections": CONNECTIONS}
    if before is None or after is None or connected is None:
        return figures
    return figures | {
        "front_mib_before": round(before, 2),
        "front_mib_after": round(after, 2),
        "mib_per_session": round((after - before) / sessions, 4),
        "mib_per_connection": round((connected - after) / CONNECTIONS, 4),
    }


def _processor_share(served: ServerProcess, seconds: float) -> Figures:
    before, started = served.processor_s(), time.perf_counter()
    time.sleep(seconds)
    used, over = served.processor_s() - before, time.perf_counter() - started
    return {"processor_share": round(used / over, 5), "seconds": round(over, 1)}


def _behind(well: Player, other: Player, *, reads: bool) -> TurnTiming:
    """A turn of `well` that waits for a turn of `other`; reads: whether `other` reads its events."""
    other.begin()
    well.begin()
    poller = zmq.Poller()
    for player in (well, other) if reads else (well,):
        poller.register(player.socket, zmq.POLLIN)
    mine: TurnTiming | None = None
    theirs = not reads
    while mine is None or not theirs:
        ready = dict(poller.poll())
        if other.socket in ready:
            theirs = other.take() is not None
        if well.socket in ready:
            mine = well.take() or mine
    return mine
