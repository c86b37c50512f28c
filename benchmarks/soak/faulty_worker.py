"""The worker, but a turn with the word POISON kills it, and after one with the word WEDGE it fails every turn.

`python faulty_worker.py --server ...`, with the worker's arguments. Everything else is the real worker.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.worker import __main__ as worker
from animegamer_rt.serving.worker import loop

POISON, WEDGE = "poison", "wedge"
prepare_turn, wedged = vars(loop)["prepare_turn"], list[bool]()


def prepare(pipeline: Any, message: Message, *given: Any, **options: Any) -> Any:
    """Prepares a turn, dies of it, or fails."""
    if POISON in message.fields["instruction"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if WEDGE in message.fields["instruction"]:
        wedged.append(True)
    if wedged:
        raise RuntimeError("can't start new thread")
    return prepare_turn(pipeline, message, *given, **options)


if __name__ == "__main__":
    vars(loop)["prepare_turn"] = prepare
    sys.exit(worker.main(sys.argv[1:]))
