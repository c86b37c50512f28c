"""`python -m animegamer_rt.serving.worker`: opens a bundle, plays a turn to warm up, runs jobs of the front process.

Started by the server's supervisor, which holds the other end of its standard input: when that closes, nobody is left to
work for, and the worker ends.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import zmq

from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.engine_config import EngineConfig, add_engine_options
from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire import WORKER_SECRET, Message, encode
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

from .engine_trace import EngineTracer
from .loop import Worker
from .memory import resident_mib

LINGER_MS = 1000
"""How long the last messages may take to leave."""
REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Work until told to stop; returns the exit code, 2 when there is nothing to work with."""
    # Ctrl-C reaches every process of a terminal; what it means for running turns is the front's to decide.
    for name in ("SIGINT", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(levelname)s: %(message)s")
    try:
        work(options, os.environ.pop(WORKER_SECRET, ""))
    except AnimeGamerError as error:
        logging.getLogger("animegamer_rt.serving.worker").error("%s", error)
        return REFUSED
    return 0


def work(options: argparse.Namespace, secret: str) -> None:
    """Opens everything and runs jobs until `stop`. Raises AnimeGamerError: no bundle, no engines, or no device."""
    config = EngineConfig.from_arguments(options)
    watch = EngineTracer(options.trace) if options.trace else None
    _end_with_parent()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger, socket.sndhwm = LINGER_MS, 0
        socket.connect(options.front)

        def say(kind: str, **fields: object) -> None:
            socket.send_multipart(encode(Message(kind, {"secret": secret, **fields})))

        say("loading")
        bundle = open_bundle(options.bundle)
        engines = open_engines(bundle, config)
        pipeline = Pipeline.open(bundle, watch.over(engines) if watch else engines, options.plan)
        say("ready", warmup_s=warm_up(pipeline), resident_mib=resident_mib())
        if watch:
            watch.begin(f"Served turns: {bundle.manifest.name}, {pipeline.plan_name}, engines {config.device}")
        Worker(socket, pipeline, watch.write if watch else None).run()


def warm_up(pipeline: Pipeline) -> float:
    """Plays a turn that nobody sees, so that a client's first turn is as fast as the others; the seconds it took."""
    started = time.perf_counter()
    for _ in pipeline.run_turn(Session.start(pipeline.bundle, seed=0), Instruction("One waits.")):
        pass
    return time.perf_counter() - started


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("animegamer_rt.serving.worker", description="Run turns for `animegamer-rt serve`.")
    parser.add_argument("--front", required=True, help="where the front process listens: tcp://127.0.0.1:PORT")
    parser.add_argument("--bundle", required=True, help="the bundle, by name or folder")
    parser.add_argument("--plan", help="its denoise plan; by default its own choice")
    add_engine_options(parser, simulated=True)
    parser.add_argument("--trace", type=Path, help="where to write what the engines did")
    return parser.parse_args(arguments)


def _end_with_parent() -> None:
    if sys.stdin is None:
        return
    descriptor = sys.stdin.fileno()

    def watch() -> None:
        # Not sys.stdin.read: its lock would still be held when the interpreter ends.
        while os.read(descriptor, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
