"""The worker, but a turn with the word POISON kills it, and after one with the word WEDGE it fails every turn.

`python faulty_worker.py --server ...`, with the worker's arguments. It reads a word once: readings take most of a
simulated turn's CPU time. Everything else is the real worker.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from animegamer_rt.backends.onnxruntime.engines import Reader
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.worker import __main__ as worker
from animegamer_rt.serving.worker import loop

POISON, WEDGE = "poison", "wedge"
prepare_turn, wedged = vars(loop)["prepare_turn"], list[bool]()
read, readings = Reader.read, dict[tuple[bytes, ...], Any]()
REMEMBERED = 256
"""Readings kept; all words of the soak's instructions and some whole ones, from soon after the start."""


def prepare(pipeline: Any, message: Message, *given: Any, **options: Any) -> Any:
    """Prepares a turn, dies of it, or fails."""
    if POISON in message.fields["instruction"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if WEDGE in message.fields["instruction"]:
        wedged.append(True)
    if wedged:
        raise RuntimeError("can't start new thread")
    return prepare_turn(pipeline, message, *given, **options)


def read_once(reader: Reader, features: Any, scene: Any) -> Any:
    """What the reader made of the same input before, or makes of it now."""
    key = features.tobytes(), scene.tobytes()
    readings[key] = readings.pop(key) if key in readings else read(reader, features, scene)
    if len(readings) > REMEMBERED:
        del readings[next(iter(readings))]  # the longest unused
    return readings[key]


if __name__ == "__main__":
    Reader.read = read_once  # type: ignore[method-assign, assignment]
    vars(loop)["prepare_turn"] = prepare
    sys.exit(worker.main(sys.argv[1:]))
