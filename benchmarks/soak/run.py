"""Plays N turns over M sessions against a server that a seeded schedule of faults kills, stops and starves.

`python benchmarks/soak/run.py --turns 2000 --faults 100 --seed 1` ends with one JSON line, the record that it writes.
Every finished turn's frames are compared with those of the same games, played in this process without a server. The
exit code is 1 if a turn was lost or a byte is wrong. The same seed gives the same games and faults.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), str(ROOT / "runtime")]
sys.path[:] = [*PATHS, *(path for path in sys.path if path != str(Path(__file__).parent))]

import numpy as np  # noqa: E402

from animegamer_rt.api import Player as LocalPlayer  # noqa: E402
from animegamer_rt.backends.registry import open_engines  # noqa: E402
from animegamer_rt.bundle.files import make_folder  # noqa: E402
from animegamer_rt.bundle.loader import Bundle, open_bundle  # noqa: E402
from animegamer_rt.engine_config import EngineConfig  # noqa: E402
from animegamer_rt.failures import report  # noqa: E402
from animegamer_rt.profiling.host import environment, write_record  # noqa: E402
from animegamer_rt.serving.store import Store  # noqa: E402
from benchmarks.soak.conductor import WORKER_TIMEOUT_S, Conductor  # noqa: E402
from benchmarks.soak.player import Player, games  # noqa: E402
from benchmarks.soak.schedule import GAME_TURNS, KINDS, LONGEST_S, faults, game_seed, instruction  # noqa: E402
from benchmarks.soak.served import Served  # noqa: E402

SAMPLE_S, LOOK_S = 1.0, 0.02
WARM_UP_TURNS, LEAST_TURNS = 500, 500
"""The first turns of a process are left out of its growth; fewest turns after them that say anything about it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak; 0 if nothing was lost and nothing is wrong, 1 otherwise."""
    options = _parse(arguments)
    try:
        make_folder(options.results)
        bundle = open_bundle(options.bundle)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            record = soak(options, bundle, Path(folder))
        path = write_record(options.results, f"{bundle.manifest.name}-soak", record)
    except Exception as error:  # noqa: BLE001  an unknown one is raised again
        return report(error)
    print(f"record: {path}")
    print(json.dumps({key: value for key, value in record.items() if key not in ("samples", "struck")}))
    bad = [record[name] for name in ("turns_lost", "wrong_bytes", "replays_changed", "failures", "left_behind")]
    good = not any(bad) and record["store_file_mib_max"] <= options.quota_mib
    return 0 if good and record["turns"] == options.turns else 1


def soak(options: argparse.Namespace, bundle: Bundle, folder: Path) -> dict[str, Any]:
    """Play, with all faults, then compare; returns the record."""
    schedule = faults(options.seed, options.faults, options.turns, options.sessions, options.longest_s, options.kind)
    copy = Path(shutil.copytree(bundle.folder, folder / "bundle"))
    plan = options.plan or bundle.default_plan
    serve = ["--device", options.device, "--plan", plan, "--quota-gib", str(options.quota_mib / 1024)]
    serve += ["--turns-per-minute", "0", "--sessions", "0", "--queue", "1000", "--backoff-s", "0.1"]
    serve += ["--worker-timeout-s", str(WORKER_TIMEOUT_S), "--workers", str(options.workers)]
    samples: list[dict[str, Any]] = []
    started, over = time.monotonic(), threading.Event()
    with Served(copy, folder, serve) as served:
        turns = [
            options.turns // options.sessions + (one < options.turns % options.sessions)
            for one in range(options.sessions)
        ]
        done = Counter[str]()
        lock = threading.Lock()

        def count() -> None:
            with lock:
                done["turns"] += 1

        world = bundle.manifest.world
        players = [
            Player(index, served.port, options.seed, world, share, count, options.game_turns)
            for index, share in enumerate(turns)
        ]
        conductor = Conductor(served, players, options.seed)

        def watch() -> None:
            while not over.wait(SAMPLE_S):
                if (figures := served.look()) is not None:
                    samples.append({"seconds": round(time.monotonic() - started, 1), "turns": done["turns"], **figures})

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        for player in players:
            player.start()
        struck: list[dict[str, Any]] = []
        try:
            for fault in schedule:
                while done["turns"] < fault.at and any(player.is_alive() for player in players):
                    time.sleep(LOOK_S)
                at = round(time.monotonic() - started, 1)
                print(f"{at:7.1f} s, turn {done['turns']}: {fault.kind}", flush=True)
                conductor.strike(fault)
                struck.append({"seconds": at, "turns": fault.at, "kind": fault.kind})
            for player in players:
                player.join()
        finally:
            over.set()
            watcher.join()
        seconds = time.monotonic() - started
        failures = [player.failure for player in players if player.failure]
        if failures:
            print(served.said(), file=sys.stderr)
    with Store(served.state) as store:
        emptied = "SELECT count(*) FROM sessions WHERE NOT closed AND key NOT IN (SELECT session FROM shots)"
        ((without_shots,),) = store.database.rows(emptied)
    played = {key: digest for player in players for key, digest in player.played.items()}
    print(f"{seconds:7.1f} s: {len(played)} turns are done; playing them without a server", flush=True)
    wrong = _wrong_turns(bundle, options, plan, turns, played)
    return {
        **environment("pyzmq", "msgpack", "onnxruntime", "psutil"),
        "kind": "soak",
        "bundle": bundle.manifest.name,
        "fingerprint": bundle.fingerprint,
        "plan": plan,
        "device": options.device,
        "workers": options.workers,
        "seed": options.seed,
        "sessions": options.sessions,
        "turns": len(played),
        "faults": len(struck),
        "faults_by_kind": dict(Counter(fault["kind"] for fault in struck)),
        "seconds": round(seconds, 1),
        "turns_lost": sum(player.lost for player in players),
        "turns_asked_again": sum(player.asked_again for player in players),
        "replays_changed": sum(player.changed for player in players),
        "wrong_turns": len(wrong),
        "wrong_bytes": len(wrong) * _clip_bytes(bundle),
        "failures": failures,
        "left_behind": served.left_behind,
        "server_starts": served.starts,
        "quota_mib": options.quota_mib,
        "sessions_emptied_by_quota": without_shots,
        "store_file_mib_max": max((sample["store_mib"] for sample in samples), default=0.0),
        "store_mib_max": max((sample["store_mib"] + sample["wal_mib"] for sample in samples), default=0.0),
        "mib_per_1000_turns": growth(samples, "server"),
        "worker_mib_per_1000_turns": growth(samples, "worker"),
        "struck": struck,
        "samples": samples,
    }


def growth(samples: Sequence[Mapping[str, Any]], process: str) -> float | None:
    """MiB of resident memory per 1000 turns: the slope over the turns of the last process, its first ones left out.

    A process begins with its first sample: of a worker, that is when it was last replaced. None if fewer than
    LEAST_TURNS turns were played after the first ones: a slope over fewer is noise, multiplied.
    """
    if not samples:
        return None
    last = [sample for sample in samples if sample[process]["pid"] == samples[-1][process]["pid"]]
    kept = [sample for sample in last if sample["turns"] >= last[0]["turns"] + WARM_UP_TURNS]
    turns = np.array([sample["turns"] for sample in kept], float)
    if not kept or turns[-1] - turns[0] < LEAST_TURNS:
        return None
    slope = np.polyfit(turns, [sample[process]["resident_mib"] for sample in kept], 1)[0]
    return round(1000 * float(slope), 3)


def _wrong_turns(
    bundle: Bundle, options: argparse.Namespace, plan: str, turns: Sequence[int], played: Mapping[tuple[str, int], str]
) -> list[tuple[str, int]]:
    """The turns whose frames are not those of the same game without a server."""
    config = EngineConfig("simulated:0" if options.device.startswith("simulated") else options.device)
    wrong = []
    with LocalPlayer(bundle, open_engines(bundle, config), plan=plan, config=config) as local:
        for index, share in enumerate(turns):
            for name, count in games(index, share, options.game_turns):
                game = local.start(seed=game_seed(options.seed, name))
                for turn in range(1, count + 1):
                    clip = game.turn(instruction(bundle.manifest.world, options.seed, name, turn))
                    digest = hashlib.sha256(clip.frames.tobytes()).hexdigest()
                    if played.get((name, turn), digest) != digest:
                        wrong.append((name, turn))
    return wrong


def _clip_bytes(bundle: Bundle) -> int:
    shape = bundle.manifest.geometry
    return 3 * shape.frames * shape.height * shape.width


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Play turns against a server that meets a schedule of faults.")
    parser.add_argument("--turns", type=int, default=2000, help="of all sessions (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=8, help="played at once (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--kind", choices=KINDS, help="the only kind of fault (default: all)")
    parser.add_argument("--workers", type=int, default=1, help="of the server (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of games and faults (default: %(default)s)")
    parser.add_argument("--bundle", default="pocket", help="name or folder (default: %(default)s)")
    parser.add_argument("--plan", help="default: the bundle's")
    parser.add_argument("--device", default="simulated:0.02", help="as in serve (default: %(default)s)")
    parser.add_argument("--quota-mib", type=float, default=8.0, help="of the store (default: %(default)s)")
    parser.add_argument("--game-turns", type=int, default=GAME_TURNS, help="of a game (default: %(default)s)")
    parser.add_argument(
        "--longest-s", type=float, default=LONGEST_S, help="of a fault, in seconds (default: %(default)g)"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", metavar="DIR")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
