"""Measures what one server holds: turns/s by players and workers, what a turn adds to the store.

`python benchmarks/capacity.py` (about five minutes) writes a record of kind `capacity`, which docs/SCALE.md cites. Most
engines only wait, so the rest is the server's; the record says how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import zmq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.profiling.host import environment, write_record
from animegamer_rt.serving.bench import measures
from animegamer_rt.serving.bench.player import Player
from animegamer_rt.serving.bench.server_process import ServerProcess
from animegamer_rt.serving.store import FILE
from animegamer_rt.serving.store.database import Database
from benchmarks.plots import RESULTS

CROWDS = (
    ("simulated:0.05", 1, (1, 16, 200), 400),
    ("simulated:0.5", 1, (1, 16), 64),
    ("simulated:0.5", 2, (16,), 128),
    ("simulated:0.5", 4, (16,), 256),
    ("cpu", 1, (4,), 64),
    ("cpu", 2, (4,), 64),
)
"""Engines, workers, numbers of players, and turns of all players of a number together."""
PLAN = "balanced"
STORED_TURNS = (100, 300)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description="Measure what one server holds.")
    parser.add_argument("--bundle", default="pocket", help="name or folder (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    options = parser.parse_args(arguments)
    make_folder(options.results)
    opened = open_bundle(options.bundle)
    bundle, name, size = opened.folder, opened.manifest.name, opened.manifest.geometry
    crowds: list[dict[str, Any]] = []
    load_before = round(psutil.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 4096)
        for device, workers, counts, turns in CROWDS:
            state = Path(folder) / f"{device.replace(':', '-')}-{workers}"
            with ServerProcess(bundle, device, state, PLAN, workers) as served:
                for count in counts:
                    before = served.processor_s()
                    each = max(2, turns // count)
                    figures = measures.concurrent_players(context, [served], count, each, size.frames / size.fps)
                    used = (served.processor_s() - before) / (count * each)
                    about = {"device": device, "plan": PLAN, "workers": workers}
                    crowds.append({**about, **figures, "server_s_per_turn": round(used, 5)})
                    print(crowds[-1], flush=True)
        stored = {}
        for turns in STORED_TURNS:
            state = Path(folder) / f"stored {turns}"
            with ServerProcess(bundle, "simulated:0", state) as served, Player(context, served.port) as player:
                player.open()
                for _ in range(turns):
                    player.play()
            database = Database(state / FILE)
            stored[turns] = database.used_bytes()
            ((shots, bytes),) = database.rows("SELECT count(*), sum(length(shot)) FROM shots")
            database.close()
    few, many = STORED_TURNS
    record = {
        **environment("pyzmq", "msgpack", "onnxruntime"),
        "kind": "capacity",
        "bundle": name,
        "load_before": load_before,
        "crowds": crowds,
        "store_bytes_per_turn": round((stored[many] - stored[few]) / (many - few), 1),
        "store_shots_kept": shots,
        "store_bytes_of_shots": bytes,
    }
    print(f"record: {write_record(options.results, f'{name}-capacity', record)}")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
