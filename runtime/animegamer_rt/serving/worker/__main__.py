"""`python -m animegamer_rt.serving.worker`: opens a bundle, plays a warm-up turn, and runs the server's jobs.

The server starts it and holds the other end of its standard input, which closes when the server dies. Then the worker
exits.
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
from dataclasses import replace

import zmq

from animegamer_rt.arguments import Parser
from animegamer_rt.backends.registry import open_engines, open_towers
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.engine_config import EngineConfig, add_engine_options
from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling.process_memory import resident_mib
from animegamer_rt.serving.wire.codec import WORKER_SECRET, WORKER_SERVER_KEY, Message, encode
from animegamer_rt.serving.wire.worker_messages import LOADING, READY, WorkerReady
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction

from .game_start import PictureStart
from .loop import Worker

LINGER_MS = 1000
"""How long to wait at the end for the last messages to be sent."""
EXIT_USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Work until told to stop. Returns the exit code: 0 after `stop`, 2 after an error, which is printed on one line.

    Such errors: a bundle or engines that cannot be opened, and a device lost during a job.
    """
    # Ctrl-C reaches every process of a terminal. The server decides what happens to running turns.
    for name in ("SIGINT", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(levelname)s: %(message)s")
    try:
        work(options, os.environ.pop(WORKER_SECRET, ""), os.environ.pop(WORKER_SERVER_KEY, ""))
    except AnimeGamerError as error:
        logging.getLogger("animegamer_rt.serving.worker").error("%s", error)
        return EXIT_USER_ERROR
    return 0


def work(options: argparse.Namespace, secret: str, server_key: str = "") -> None:
    """Open the bundle and engines, and run jobs until `stop`. server_key: of a server on another machine.

    Raises AnimeGamerError if the bundle or engines cannot be opened, DeviceLostError if a job loses the device.
    """
    config = EngineConfig.from_arguments(options)
    _exit_with_parent()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger, socket.sndhwm = LINGER_MS, 0
        socket.ipv6 = "[" in options.server
        if server_key:
            socket.curve_serverkey = server_key.encode()
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.connect(options.server)
        socket.send_multipart(encode(Message(LOADING, {"secret": secret})))
        bundle = open_bundle(options.bundle, config.width_height)
        engines = open_engines(bundle, config, plan=options.plan)
        pipeline = Pipeline.open(bundle, engines, options.plan)
        opened = bundle.fingerprint, bundle.steps_hash(options.plan), pipeline.engines
        ready = WorkerReady(secret, warm_up(pipeline), resident_mib(), *opened)
        socket.send_multipart(encode(Message(READY, ready.to_fields())))
        encoder = engines.encoder
        pictures = None if encoder is None else PictureStart(encoder, lambda: open_towers(bundle, config))
        Worker(socket, pipeline, pictures).run()


def warm_up(pipeline: Pipeline) -> float:
    """Play one turn and discard it, so that a client's first turn is as fast as the others; returns seconds.

    Without the reader, which may refuse the text: a worker that cannot warm up would never start.
    """
    started = time.perf_counter()
    for _ in replace(pipeline, reader=None).run_turn(Session.start(pipeline.bundle, seed=0), Instruction("One waits.")):
        pass
    return time.perf_counter() - started


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser("animegamer_rt.serving.worker", description="Run turns for `animegamer-rt serve`.")
    parser.add_argument("--server", required=True, help="the server's socket for its worker: tcp://HOST:PORT")
    parser.add_argument("--bundle", required=True, help="name or folder")
    parser.add_argument("--plan", help="denoise plan (default: the bundle's)")
    add_engine_options(parser, simulated=True)
    return parser.parse_args(arguments)


def _exit_with_parent() -> None:
    """Exit when standard input closes, which means that the server is gone, for whatever reason."""
    if sys.stdin is None:
        return
    descriptor = sys.stdin.fileno()

    def watch() -> None:
        # Not sys.stdin.read: its lock would still be held at interpreter exit.
        while os.read(descriptor, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
