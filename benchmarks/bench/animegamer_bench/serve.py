"""Runs the measurements of `animegamer-rt bench serve`, prints them beside their goals and writes the record.

Knows their order and the servers they need; `measures` does the measuring.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import zmq

from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS, Geometry
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.profiling import activity
from animegamer_rt.profiling.host import describe_host, environment, instruction_sets, write_record
from animegamer_rt.serving.wire import CODECS

from . import measures
from .recording import Recording, read_recording
from .serve_table import COMPUTED, lines
from .server_process import ServerProcess

PLAYER_COUNTS, PLAYER_COUNTS_COMPUTED = (1, 2, 4, 8, 16), (1, 4, 16)
FAST = "fast"
"""The other plan that players are measured with, where the bundle has it."""
GOALS = {
    "overhead_s": 0.010,
    "lost": 0.02,
    "mib_per_session": 1.0,
    "stalled_ratio": 1.02,
    "processor_share": 0.005,
}
"""overhead_s: with raw frames on loopback. lost: throughput of 16 sessions against one. stalled_ratio: within noise of
1. processor_share: of a core, by a server that nobody plays on."""
IDLE_S_PER_TURN = 1.0
"""How long an idle server is watched, for each turn that is measured of the other figures, in seconds."""


FULL_SIZE = Geometry(height=480, width=720, latent_height=60, latent_width=90, shot_width=1920)


@dataclass(frozen=True, slots=True)
class ServeBench:
    """What is measured. turns: samples of each figure; turn_s: seconds that simulated engines take for a turn."""

    bundle: str = "pocket"
    plan: str | None = None
    turns: int = 25
    turn_s: float = 0.2
    results: Path = Path("bench-results")
    replay: Path | None = None
    """Folder of a game that is played again with its think times, all of it; None: the beginning of our own."""


def bench_serve(options: ServeBench) -> int:
    """Measure, print, and write a record under `results`. Raises AnimeGamerError."""
    make_folder(options.results)
    bundle = open_bundle(options.bundle)
    plan = options.plan or bundle.default_plan
    bundle.plan(plan)
    name = bundle.manifest.name
    game = read_recording(options.replay)
    if options.replay is None:
        game = game.first(max(1, options.turns // 2))
    print(f"{name}, plan {plan}, on {describe_host()}")
    before = activity.watch_alone(activity.read_machine)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, zmq.Context() as context:
        context.linger = 0
        full = write_full_size(Path(folder) / "bundle", bundle)
        found = _measure(options, context, (bundle, full), plan, game, Path(folder))
    record = {
        **environment("pyzmq", "msgpack", "onnxruntime", "av"),
        "kind": "wire",
        "size": name,
        "fingerprint": bundle.fingerprint,
        "instruction_sets": instruction_sets(),
        "plan": plan,
        "turns": options.turns,
        "turn_s": options.turn_s,
        "goals": GOALS,
        "activity": {"before": before, "after": activity.watch_alone(activity.read_machine)},
        **found,
    }
    for line in lines(record):
        print(line)
    path = write_record(options.results, f"{name}-wire", record)
    print(f"record: {path}")
    print(json.dumps(record))
    return 0


def _measure(
    options: ServeBench,
    context: zmq.Context[zmq.Socket[bytes]],
    bundles: tuple[Bundle, Bundle],
    plan: str,
    game: Recording,
    folder: Path,
) -> dict[str, Any]:
    """All figures, a server for each pair of bundle and engines."""
    turns, simulated, idle_s = options.turns, f"simulated:{options.turn_s:g}", options.turns * IDLE_S_PER_TURN
    found: dict[str, Any] = {
        "overhead": [],
        "idle": [],
        "transfer": [],
        "crowd": [],
        "replay": [],
        "cancel": [],
        "memory": [],
    }
    size = bundles[0].manifest.geometry
    deadline_s = round(size.frames / size.fps, 4)

    def serve(bundle: Bundle, device: str, plan: str = plan) -> ServerProcess:
        name = bundle.manifest.name
        print(f"  measuring {name}, device {device}, plan {plan} ...", flush=True)
        state = Path(tempfile.mkdtemp(dir=folder)) / name
        return ServerProcess(bundle.folder, device, state, plan)

    def note(kind: str, bundle: Bundle, device: str, figures: measures.Figures) -> None:
        size = bundle.manifest.geometry
        shape = [size.frames, size.height, size.width]
        found[kind].append({"size": bundle.manifest.name, "shape": shape, "engines": device, **figures})

    def concurrent(
        bundle: Bundle, servers: Sequence[ServerProcess], counts: Sequence[int], turns: int, plans: Sequence[str]
    ) -> None:
        """For each count of players, about `turns` turns of all of them together."""
        alone = 0.0
        for count in counts:
            each = max(2, turns // count)
            figures = measures.concurrent_players(context, servers, count, each, deadline_s)
            alone = figures["turns_per_s"] if count == 1 else alone
            lost = {"lost": round(1 - figures["turns_per_s"] / alone, 4)} if alone else {}
            note("crowd", bundle, servers[0].device, {"plans": list(plans), **figures, **lost})

    for bundle in bundles:
        with serve(bundle, simulated) as served:
            figures = measures.overhead(context, served, turns)
            note("overhead", bundle, simulated, figures)
            note("cancel", bundle, simulated, measures.cancelling(context, served, turns))
            if bundle is bundles[0]:
                note("idle", bundle, simulated, measures.idle(context, served, idle_s))
                concurrent(bundle, [served], PLAYER_COUNTS, 2 * turns, [plan])
            else:
                figures, idle = measures.slow_reader(context, served, turns // 2, idle_s)
                note("idle", bundle, simulated, idle)
                found["stalled"] = {"size": bundle.manifest.name, "engines": simulated, **figures}
        with serve(bundle, "simulated:0") as served:
            for codec in CODECS:
                note("transfer", bundle, "simulated:0", measures.transfer(context, served, codec, turns))
            sessions = 8 * turns if bundle is bundles[0] else turns
            note("memory", bundle, "simulated:0", measures.memory(context, served, sessions))
    plans = [plan, *([FAST] if FAST in bundles[0].manifest.plans and plan != FAST else [])]
    with contextlib.ExitStack() as stack:
        servers: list[ServerProcess] = []
        for one in plans:
            servers.append(stack.enter_context(serve(bundles[0], COMPUTED, one)))
            concurrent(bundles[0], servers[-1:], PLAYER_COUNTS_COMPUTED, turns, [one])
        if len(servers) > 1:
            concurrent(bundles[0], servers, PLAYER_COUNTS_COMPUTED[1:], turns, plans)
        thought_s = sum(turn.think_s for turn in game.turns)
        print(f"  replaying {game.name}: {len(game.turns)} turns, {thought_s:.0f} s of thinking ...", flush=True)
        note("replay", bundles[0], COMPUTED, measures.recorded(context, servers[0], game, deadline_s))
    return found


def write_full_size(folder: Path, model: Bundle) -> Bundle:
    """Write a bundle of the published model's sizes without networks, for engines that only take time: a new folder.

    Sizes: docs/MODEL.md. Words, plans and tokenizer are those of `model`.
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
            description="sizes of the published model, no networks: to measure everything around the engines",
            origin=RANDOM_WEIGHTS,
            geometry=FULL_SIZE,
            parts={},
            reader=None,
            files={},
            engines={},
            sizes={},
            quality={},
        ),
    )
