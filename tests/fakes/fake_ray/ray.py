"""In the place of the package `ray`: this machine plays all nodes of a cluster, which a JSON file describes.

FAKE_RAY names the file: {"nodes": {name: cores}, "refused": text}. It may be changed at any time.
An actor is a process of its own, as in Ray. It is killed when its node leaves the file or the process that asked for it
ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__version__ = "9.9.9"
actors: list[Actor] = []
here = ""


class RayError(Exception):
    """An actor died."""


class Ref:
    """What a method of an actor will return."""

    def __init__(self, actor: Actor, method: str, arguments: tuple[Any, ...]) -> None:
        self.actor, self.call, self.sent, self.value = actor, (method, arguments), False, None

    def done(self) -> bool:
        """Whether `get` does not have to wait."""
        actor = self.actor
        if actor.process is not None and not self.sent:
            self.sent = True
            actor.ours.send(self.call)
        return actor.dead or (actor.process is not None and actor.ours.poll())


class Actor:
    """An actor, placed or not."""

    def __init__(self, kind: type, cores: int) -> None:
        self.kind, self.cores, self.where, self.dead = kind, cores, "", False
        self.process: int | None = None
        self.ours: Any = None
        actors.append(self)

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: Ref(self, method, arguments))

    def start(self, where: str) -> None:
        self.where, parent = where, os.getpid()
        self.ours, theirs = multiprocessing.Pipe()
        self.process = os.fork()
        if not self.process:
            try:
                work(self.kind, where, theirs, parent)
            finally:
                os._exit(1)
        theirs.close()

    def end(self) -> None:
        self.dead = True
        if self.process is not None:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process = None


def work(kind: type, where: str, theirs: Any, parent: int) -> None:
    global here
    here = where
    threading.Thread(target=watch, args=(parent,), daemon=True).start()
    actor = kind()
    while True:
        method, arguments = theirs.recv()
        theirs.send(getattr(actor, method)(*arguments))


def watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.02)
    os._exit(1)


def look() -> None:
    """Place actors that wait, and end those whose node is gone."""
    cluster = described()
    for actor in actors:
        if actor.process is None:
            continue
        if actor.where not in cluster["nodes"]:
            actor.end()
        elif os.waitpid(actor.process, os.WNOHANG)[0]:
            actor.dead, actor.process = True, None
    for actor in actors:
        for name, cores in cluster["nodes"].items():
            used = sum(one.cores for one in actors if one.where == name and not one.dead)
            if not actor.where and not actor.dead and used + actor.cores <= cores:
                actor.start(name)


def described() -> Any:
    return json.loads(Path(os.environ["FAKE_RAY"]).read_text())


def init(address: str, **options: Any) -> None:
    if refused := described().get("refused"):
        raise RuntimeError(refused)


def remote(kind: type) -> Any:
    def options(num_cpus: int, num_gpus: int, max_restarts: int, scheduling_strategy: str) -> Any:
        assert (num_gpus, max_restarts) == (0, 0)
        return SimpleNamespace(remote=lambda: Actor(kind, num_cpus))

    return SimpleNamespace(options=options)


def wait(refs: list[Ref], num_returns: int, timeout: float) -> tuple[list[Ref], list[Ref]]:
    until = time.monotonic() + timeout
    while True:
        look()
        ready = [ref for ref in refs if ref.done()][:num_returns]
        if ready or time.monotonic() >= until:
            return ready, [ref for ref in refs if ref not in ready]
        time.sleep(0.01)


def get(ref: Ref) -> Any:
    try:
        return ref.actor.ours.recv()
    except (EOFError, OSError, AttributeError) as error:
        raise RayError("The actor died.\nIts worker process was killed.") from error


def kill(actor: Actor) -> None:
    actor.end()


def shutdown() -> None:
    for actor in actors:
        kill(actor)


exceptions = SimpleNamespace(RayError=RayError)
util = SimpleNamespace(get_node_ip_address=lambda: here)
