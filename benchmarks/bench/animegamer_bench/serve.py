"""`animegamer-rt bench serve`: the time that the server adds to the engines', measured by a client.

The client runs in the command's process; the server and its worker are separate processes, as usual. One function per
figure; `bench_serve` runs them, prints the figures with their goals and writes the record.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS, Geometry
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.profiling.host import describe_host, environment
from animegamer_rt.serving.wire.schema import CODECS

from .machine import machine_facts, read_machine, watch_alone
from .player import Player, ServerProcess, TurnTiming, play_together
from .records import series, write_record
from .table import COMPUTED, lines

PLAYER_COUNTS, PLAYER_COUNTS_COMPUTED = (1, 2, 4, 8, 16), (1, 4, 16)
FAST = "fast"
"""The second plan measured with players, if the bundle has it."""
GOALS = {
    "overhead_s": 0.010,
    "lost": 0.02,
}
"""overhead_s: with raw frames on loopback. lost: throughput of 16 sessions against one."""
KINDS = ("overhead", "transfer", "crowd", "cancel")
"""Record fields with one entry per measured server."""
WINDOW_FULL = 5
"""Turns after which a game's history window is full, in every bundle so far."""
FULL_SIZE = Geometry(height=480, width=720, latent_height=60, latent_width=90, shot_width=1920)

Figures = dict[str, Any]


def bench_serve(
    model: str, plan: str | None, turns: int, results: Path, *, workers: int = 1, turn_s: float = 0.2
) -> int:
    """Measures, prints, and writes a record under `results`. Raises AnimeGamerError.

    model: a bundle's name or folder. plan: None for its default. turns: samples per figure. workers: of
    each server. turn_s: seconds of a simulated turn.
    """
    make_folder(results)
    bundle = open_bundle(model)
    plan = plan or bundle.default_plan
    bundle.plan(plan)
    name = bundle.manifest.name
    print(f"{name}, plan {plan}, on {describe_host()}")
    before = watch_alone(read_machine)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            found = _measure(bundle, plan, turns, workers, turn_s, Path(folder))
        except KeyboardInterrupt:
            print("no record was written: it needs every figure")
            raise
    record = {
        **environment("pyzmq", "msgpack", "onnxruntime", "av"),
        "kind": "wire",
        "size": name,
        "fingerprint": bundle.fingerprint,
        **machine_facts(),
        "plan": plan,
        "turns": turns,
        "workers": workers,
        "turn_s": turn_s,
        "goals": GOALS,
        "activity": {"before": before, "after": watch_alone(read_machine)},
        **found,
    }
    print("\n".join(lines(record)))
    print(f"record: {write_record(results, f'{name}-wire', record)}")
    print(json.dumps(record))
    return 0


def _measure(bundle: Bundle, plan: str, turns: int, workers: int, turn_s: float, folder: Path) -> Figures:
    """Record fields: all figures, with one server per pair of bundle and engines."""
    simulated = f"simulated:{turn_s:g}"
    geometry, full = bundle.manifest.geometry, write_full_size(folder / "bundle", bundle)
    deadline_s = round(geometry.frames / geometry.fps, 4)
    found: Figures = {kind: [] for kind in KINDS}

    def serve(bundle: Bundle, device: str, plan: str = plan) -> ServerProcess:
        print(f"  measuring {bundle.manifest.name}, device {device}, plan {plan} ...", flush=True)
        state = Path(tempfile.mkdtemp(dir=folder)) / bundle.manifest.name
        return ServerProcess(bundle.folder, device, state, plan, workers)

    def note(kind: str, bundle: Bundle, device: str, figures: Figures) -> None:
        size = bundle.manifest.geometry
        shape = [size.frames, size.height, size.width]
        found[kind].append({"size": bundle.manifest.name, "shape": shape, "engines": device, **figures})

    def crowd(servers: Sequence[ServerProcess], counts: Sequence[int], turns: int, *plans: str) -> None:
        """For each number of players, about `turns` turns in total."""
        alone = 0.0
        for count in counts:
            figures = concurrent_players(servers, count, max(2, turns // count), deadline_s)
            alone = figures["turns_per_s"] if count == 1 else alone
            lost = {"lost": round(1 - figures["turns_per_s"] / alone, 4)} if alone else {}
            note("crowd", bundle, servers[0].device, {"plans": list(plans), **figures, **lost})

    for one in (bundle, full):
        with serve(one, simulated) as served:
            note("overhead", one, simulated, overhead(served, turns))
            if one is bundle:
                crowd([served], PLAYER_COUNTS, 2 * turns, plan)
        with serve(one, "simulated:0") as served:
            for codec in CODECS:
                note("transfer", one, "simulated:0", transfer(served, codec, turns))
    plans = [plan, *([FAST] if FAST in bundle.manifest.plans and plan != FAST else [])]
    with ExitStack() as stack:
        servers: list[ServerProcess] = []
        for name in plans:
            servers.append(stack.enter_context(serve(bundle, COMPUTED, name)))
            # Not simulated: a turn ends with the step that runs, and a simulated one of few steps has long ones.
            note("cancel", bundle, COMPUTED, {"plans": [name], **cancelling(servers[-1], turns)})
            crowd(servers[-1:], PLAYER_COUNTS_COMPUTED, turns, name)
        if len(servers) > 1:
            crowd(servers, PLAYER_COUNTS_COMPUTED[1:], turns, *plans)
    return found


def _over(played: Sequence[TurnTiming], *names: str) -> Figures:
    """The `series` of each of these figures of turns."""
    return {name: series(turn.figures()[name] for turn in played) for name in names}


def overhead(served: ServerProcess, turns: int) -> Figures:
    """One player with raw frames: seconds of a turn beyond its engines, and the times of its first events."""
    with Player(served.port) as player:
        player.open()
        for _ in range(WINDOW_FULL):
            player.play()
        played = [player.play() for _ in range(turns)]
    return _over(played, "overhead_s", "outside_s", "turn_s", "state_s", "state_overhead_s", "first_frame_s")


def transfer(served: ServerProcess, codec: str, turns: int) -> Figures:
    """One player: seconds from the end of denoising to the last byte of the clip; vae_s: the engine's share of it."""
    with Player(served.port, codec=codec) as player:
        player.open()
        player.play()
        played = [player.play() for _ in range(turns)]
    size = round(statistics.median(turn.bytes for turn in played))
    return {"codec": codec, **_over(played, "clip_s", "vae_s"), "bytes": size}


def cancelling(served: ServerProcess, turns: int) -> Figures:
    """Seconds from `cancel`, sent while a turn is denoised, to its end. done_first: turns that finished before it."""
    with Player(served.port) as player:
        player.open(history_turns=0)
        player.play()
        ended = [seconds for seconds in (player.cancel() for _ in range(turns)) if seconds is not None]
    return {"cancel_s": series(ended) if ended else None, "done_first": turns - len(ended)}


def concurrent_players(servers: Sequence[ServerProcess], sessions: int, turns: int, deadline_s: float) -> Figures:
    """`sessions` concurrent players, each with `turns` turns without pause or history, so that all turns cost the same.

    servers: the players are distributed among them.
    """
    with ExitStack() as stack:
        ports = [servers[number % len(servers)].port for number in range(sessions)]
        players = [stack.enter_context(Player(port)) for port in ports]
        for player in players:
            player.open(history_turns=0)
        for player in players[: len(servers)]:
            player.play()
        played = play_together(dict.fromkeys(players, turns))
    between = np.diff([turn.done_at for turn in played])
    engines_s = statistics.fmean(turn.figures()["engines_s"] for turn in played[1:])
    return {
        "sessions": sessions,
        "interval_s": series(between),
        "turns_per_s": round(1 / float(between.mean()), 4),
        **_waits(played, deadline_s),
        "engines_busy": round(engines_s / float(between.mean()), 4),
    }


def _waits(played: Sequence[TurnTiming], deadline_s: float) -> Figures:
    """Waiting times of players. deadline_s: the clip's duration; goodput: the share of turns within it."""
    turns_s = [turn.figures()["turn_s"] for turn in played]
    return {
        **_over(played, "turn_s", "state_s", "first_frame_s"),
        "deadline_s": deadline_s,
        "goodput": round(statistics.fmean(turn_s <= deadline_s for turn_s in turns_s), 4),
    }


def write_full_size(folder: Path, model: Bundle) -> Bundle:
    """Writes a bundle with the published model's sizes and no networks, for simulated engines, to a new folder.

    Sizes: docs/MODEL.md. Words, plans' steps and tokenizer are those of `model`.
    """
    folder.mkdir(parents=True)
    manifest = model.manifest
    for name in (manifest.tokenizer.model, manifest.tokenizer.added_tokens):
        shutil.copy(model.path(name), folder / name)
    return write_manifest(
        folder,
        replace(
            manifest,
            name="full-size",
            description="sizes of the published model, no networks: measures everything except the engines",
            origin=RANDOM_WEIGHTS,
            geometry=FULL_SIZE,
            parts={},
            plans={name: replace(entry, parts={}) for name, entry in manifest.plans.items()},
            reader=None,
            files={},
            engines={},
            sizes={},
            quality={},
        ),
    )
