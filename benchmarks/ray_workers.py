"""Measures what a worker on a node of a Ray cluster adds to a turn, against a worker on the server's own machine.

`python benchmarks/ray_workers.py HOST:PORT` (six minutes) writes a record of kind `ray`, which docs/SCALE.md cites.
Both servers run at the same time and play in turns, a few turns each, so that a busy machine is busy for both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import zmq

from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.profiling.host import environment, write_record
from animegamer_rt.serving.bench import measures
from animegamer_rt.serving.bench.full_size import write_full_size
from animegamer_rt.serving.bench.played_turn import TurnTiming
from animegamer_rt.serving.bench.player import Player
from animegamer_rt.serving.bench.server_process import ServerProcess

RESULTS = Path(__file__).parent / "results"
DEVICE = "simulated:0.5"
ROUNDS, TURNS = 12, 5
CODECS = ("raw", "jpeg")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description="Measure what a worker in a Ray cluster adds to a turn.")
    parser.add_argument("address", metavar="HOST:PORT", help="what `ray start --head` printed")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    options = parser.parse_args(arguments)
    make_folder(options.results)
    pocket, load_before = open_bundle("pocket"), round(psutil.getloadavg()[0], 1)
    sizes = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, zmq.Context() as context:
        folder = Path(name)
        for bundle in (pocket, write_full_size(folder / "bundle", pocket)):
            state = folder / bundle.manifest.name
            with (
                ServerProcess(bundle.folder, DEVICE, state / "local") as local,
                ServerProcess(bundle.folder, DEVICE, state / "ray", ray=options.address) as ray,
            ):
                for codec in CODECS:
                    about = {"bundle": bundle.manifest.name, "codec": codec}
                    sizes.append({**about, **compared(context, local, ray, codec)})
                    print(sizes[-1], flush=True)
    record = {
        **environment("pyzmq", "msgpack", "ray"),
        "kind": "ray",
        "device": DEVICE,
        "load_before": load_before,
        "load_after": round(psutil.getloadavg()[0], 1),
        "sizes": sizes,
    }
    print(f"record: {write_record(options.results, 'ray', record)}")
    print(json.dumps(record))


def compared(
    context: zmq.Context[zmq.Socket[bytes]], local: ServerProcess, ray: ServerProcess, codec: str
) -> dict[str, Any]:
    """Seconds of a turn beyond its engines at both servers, with a full history; added_s: the medians' difference."""
    played: dict[str, list[TurnTiming]] = {"local": [], "ray": []}
    with Player(context, local.port, codec=codec) as near, Player(context, ray.port, codec=codec) as far:
        players = {"local": near, "ray": far}
        for player in players.values():
            player.open()
            for _ in range(measures.WINDOW_FULL):
                player.play()
        for _ in range(ROUNDS):
            for name, player in players.items():
                played[name] += [player.play() for _ in range(TURNS)]
    beyond = {name: measures.series(turn.overhead_s for turn in turns) for name, turns in played.items()}
    whole = {name: measures.series(turn.turn_s for turn in turns) for name, turns in played.items()}
    added_s = round(beyond["ray"]["p50"] - beyond["local"]["p50"], 4)
    return {"bytes": played["ray"][-1].bytes, "added_s": added_s, "beyond_engines_s": beyond, "turn_s": whole}


if __name__ == "__main__":
    main()
