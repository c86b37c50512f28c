"""Plays N turns over M sessions against a server that a seeded schedule of faults kills, stops and starves.

`python benchmarks/soak/run.py --turns 2000 --faults 100 --seed 1` ends with one JSON line, the record that it writes.
Every finished turn's frames are compared with those of the same games, played in this process without a server. The
exit code is 1 if a goal of `verdicts` is missed. The same seed gives the same games and faults.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), str(ROOT / "runtime")]
sys.path[:] = [*PATHS, *(path for path in sys.path if path != str(Path(__file__).parent))]

from animegamer_bench.records import write_record  # noqa: E402
from animegamer_rt.bundle.files import make_folder  # noqa: E402
from animegamer_rt.bundle.loader import Bundle, open_bundle  # noqa: E402
from animegamer_rt.engine_config import EngineConfig  # noqa: E402
from animegamer_rt.errors import AnimeGamerError  # noqa: E402
from animegamer_rt.failures import report  # noqa: E402
from animegamer_rt.profiling.host import environment  # noqa: E402
from animegamer_rt.serving.server.config_file import print_config  # noqa: E402
from animegamer_rt.serving.server.options import ServeOptions  # noqa: E402
from animegamer_rt.serving.store.store import Store  # noqa: E402
from benchmarks.soak.conductor import Conductor  # noqa: E402
from benchmarks.soak.player import Player  # noqa: E402
from benchmarks.soak.schedule import GAME_TURNS, LONGEST_S, faults  # noqa: E402
from benchmarks.soak.served import Served  # noqa: E402
from benchmarks.soak.undisturbed import compare  # noqa: E402
from benchmarks.soak.verdicts import verdicts  # noqa: E402
from benchmarks.soak.watch import Watch, columns, growth  # noqa: E402

LOOK_S = 0.02
LEAST_TIMEOUT_S = 2.5
"""worker_timeout_s of the server in a short soak. In a long one it is longer than a worker waits for a busy CPU."""
SETTLE_S = 10.0
"""Turns sent this soon after a fault are not quiet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a soak; 0 if all goals are met, 1 otherwise."""
    options = _parse(arguments)
    try:
        make_folder(options.results)
        bundle = open_bundle(options.bundle)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            record = soak(options, bundle, Path(folder))
        path = write_record(options.results, f"{bundle.manifest.name}-{record['kind']}", record)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  an unknown one is raised again
        return report(error)
    print(f"record: {path}")
    print(json.dumps({key: value for key, value in record.items() if key not in ("samples", "struck")}))
    judged = list(verdicts(record))
    print(*judged, sep="\n")
    return int(not all(verdict.met for verdict in judged))


def soak(options: argparse.Namespace, bundle: Bundle, folder: Path) -> dict[str, Any]:
    """Plays, with all faults, then compares; returns the record.

    A server that does not recover ends the playing early, and is a failure in the record.
    """
    stop = threading.Event()
    schedule = faults(options.seed, options.faults, options.turns, options.sessions, options.longest_s)
    copy = Path(shutil.copytree(bundle.folder, folder / "bundle"))
    plan = options.plan or bundle.default_plan
    engines = EngineConfig(options.device)
    limits = ServeOptions(plan=plan, engines=engines, workers=options.workers, quota_gib=options.quota_mib / 1024)
    worker_timeout_s = max(LEAST_TIMEOUT_S, 3 * options.longest_s)
    limits = replace(limits, turns_per_minute=0, sessions=0, queue=1000, worker_timeout_s=worker_timeout_s)
    settings = folder / "serve.toml"
    settings.write_text(print_config(limits), encoding="utf-8")
    with Served(copy, folder, ["--config", str(settings)]) as served:
        done, lock = Counter[str](), threading.Lock()

        def count() -> None:
            with lock:
                done["turns"] += 1

        world, (each, more) = bundle.manifest.world, divmod(options.turns, options.sessions)
        players = [
            Player(index, served.port, options.seed, world, each + (index < more), count, stop, options.game_turns)
            for index in range(options.sessions)
        ]
        conductor = Conductor(served, players, options.seed, worker_timeout_s)
        struck: list[dict[str, Any]] = []
        disturbed: list[tuple[float, float, str]] = []
        """From when to when a fault lasted, and its kind."""
        failures: list[str] = []
        with Watch(served.look, lambda: done["turns"]) as watch:
            for player in players:
                player.start()
            for fault in schedule:
                while done["turns"] < fault.at and not stop.is_set() and any(player.is_alive() for player in players):
                    time.sleep(LOOK_S)
                if stop.is_set():
                    break
                at = watch.seconds
                print(f"{at:7.1f} s, turn {done['turns']}: {fault.kind}", flush=True)
                struck.append({"seconds": at, "turns": fault.at, "kind": fault.kind})
                began = time.monotonic()
                try:
                    conductor.strike(fault)
                except (AnimeGamerError, OSError) as error:
                    failures.append(f"{fault.kind}: {error}")
                    stop.set()
                disturbed.append((began, time.monotonic(), fault.kind))
            for player in players:
                player.join()
            seconds = watch.seconds
        failures += [player.failure for player in players if player.failure]
        if failures:
            print(served.last_output(), file=sys.stderr)
        logged = served.log_bytes()
    with Store(served.state) as store:
        emptied = "SELECT count(*) FROM sessions WHERE NOT closed AND key NOT IN (SELECT session FROM shots)"
        ((without_shots,),) = store.database.rows(emptied)
    played = {key: digest for player in players for key, digest in player.played.items()}
    print(f"{seconds:7.1f} s: {len(played)} turns done; replaying their games without a server", flush=True)
    wrong = compare(bundle, options.device, plan, options.seed, played)
    return {
        **environment("pyzmq", "msgpack", "onnxruntime", "psutil"),
        "kind": "soak",
        "incomplete": len(played) < options.turns,
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
        "seconds": seconds,
        "turn_seconds": _latencies([one for player in players for one in player.took], disturbed),
        "log_mib": round(logged / 2**20, 3),
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
        "store_file_mib_max": max((sample["store_mib"] for sample in watch.samples), default=0.0),
        "store_mib_max": max((sample["store_mib"] + sample["wal_mib"] for sample in watch.samples), default=0.0),
        "mib_per_1000_turns": growth(watch.samples, "server"),
        "worker_mib_per_1000_turns": growth(watch.samples, "worker"),
        "gateway_mib_per_1000_turns": growth(watch.samples, "gateway"),
        "struck": struck,
        "samples": columns(watch.samples),
    }


def _latencies(took: Sequence[tuple[float, float]], disturbed: Sequence[tuple[float, float, str]]) -> dict[str, Any]:
    """Seconds of all turns, and by the last fault that lasted or had just ended meanwhile; `quiet`: none."""
    groups: dict[str, list[float]] = {"all": [seconds for _, seconds in took], "quiet": []}
    for sent, seconds in took:
        near = [kind for began, ended, kind in disturbed if began < sent + seconds and sent < ended + SETTLE_S]
        groups.setdefault(near[-1] if near else "quiet", []).append(seconds)
    return {name: _percentiles(group) for name, group in groups.items()}


def _percentiles(seconds: Sequence[float]) -> dict[str, Any]:
    if not seconds:
        return {"turns": 0}
    p50, p95 = np.percentile(seconds, (50, 95))
    return {"turns": len(seconds), "p50": round(float(p50), 3), "p95": round(float(p95), 3)}


def _clip_bytes(bundle: Bundle) -> int:
    shape = bundle.manifest.geometry
    return 3 * shape.frames * shape.height * shape.width


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Play turns against a server under a schedule of faults.")
    parser.add_argument("--turns", type=int, default=2000, help="turns in all (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=8, help="concurrent sessions (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=1, help="workers of the server (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of games and faults (default: %(default)s)")
    parser.add_argument("--bundle", default="pocket", help="name or folder (default: %(default)s)")
    parser.add_argument("--plan", help="default: the bundle's")
    parser.add_argument("--device", default="simulated:0.02", help="device, as for serve (default: %(default)s)")
    parser.add_argument("--quota-mib", type=float, default=8.0, help="quota of the store (default: %(default)s)")
    parser.add_argument("--game-turns", type=int, default=GAME_TURNS, help="turns per game (default: %(default)s)")
    parser.add_argument(
        "--longest-s", type=float, default=LONGEST_S, help="longest fault in seconds (default: %(default)g)"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", metavar="DIR")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
