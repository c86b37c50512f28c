"""`python -m animegamer_rt.serving.cluster HOST:PORT`: places, watches and ends workers in a Ray cluster.

The server starts it and talks to it in lines of JSON on standard input and output:

    server -> here    a job for a node (`NodeJob`, with its number in `id`), {"kill": id}
    here -> server    {"joined": Ray's version} or {"error", "found", "do"}; then for each id
                      {"id", "placed": node}, {"id", "waits": true}, {"id", "ended": how}

Frames do not pass through here: each worker has its own socket to the server. When standard input closes, the server is
gone; Ray then ends the actors, and with them the workers.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

CONNECT_S = 60.0
"""Ray itself would try longer to join a cluster that does not answer."""
WAITS_S = 10.0
"""A worker without a node after this long is reported as waiting."""
ROUND_S = 0.1


class NodeActor:
    """The actor on a node. It is pickled by value, so that a node without this package can report that."""

    def node(self) -> str:
        """The node's address."""
        ray: Any = importlib.import_module("ray")
        return str(ray.util.get_node_ip_address())

    def run(self, job: dict[str, Any], node: str) -> str:
        """Run a worker until it ends; returns how it ended, as words that follow its name."""
        try:
            program: Any = importlib.import_module("animegamer_rt.serving.cluster.node")
        except ImportError as error:
            print(error, file=sys.stderr, flush=True)
            return f"could not start on node {node}; install animegamer-rt in the Python that runs Ray there"
        return str(program.run_worker(job, node))


class Worker:
    """A worker in the cluster. `ref`: resolves to its node, then to how it ended."""

    def __init__(self, job: dict[str, Any], actor: Any) -> None:
        self.job, self.actor, self.asked_at = job, actor, time.monotonic()
        self.ref: Any = actor.node.remote()
        self.placed = self.waits = False


class Cluster:
    """The workers that the server requested, by id."""

    def __init__(self, ray: Any, channel: Any) -> None:
        self._ray, self._channel = ray, channel
        self._actor = ray.remote(NodeActor)
        self._workers: dict[int, Worker] = {}

    def handle(self, command: Mapping[str, Any]) -> None:
        """Carry out a command of the server."""
        if "kill" in command:
            worker = self._workers.pop(command["kill"], None)
            if worker is not None:
                self._ray.kill(worker.actor)
            return
        job = dict(command)
        resources = {"num_cpus": job.pop("cpus"), "num_gpus": job.pop("gpus")}
        actor = self._actor.options(**resources, max_restarts=0, scheduling_strategy="SPREAD").remote()
        self._workers[job.pop("id")] = Worker(job, actor)

    def report(self) -> None:
        """Report changes of the workers to the server, after at most a round."""
        if not self._workers:
            time.sleep(ROUND_S)
            return
        refs = {worker.ref: id for id, worker in self._workers.items()}
        ready, _ = self._ray.wait(list(refs), num_returns=1, timeout=ROUND_S)
        for ref in ready:
            self._advance(refs[ref])
        now = time.monotonic()
        for id, worker in self._workers.items():
            if not (worker.placed or worker.waits) and now - worker.asked_at > WAITS_S:
                worker.waits = True
                self.send(id=id, waits=True)

    def send(self, **event: Any) -> None:
        """Send an event to the server."""
        self._channel.write(json.dumps(event) + "\n")
        self._channel.flush()

    def _advance(self, id: int) -> None:
        worker = self._workers[id]
        try:
            said = self._ray.get(worker.ref)
        except self._ray.exceptions.RayError as error:
            del self._workers[id]
            print(one_line(str(error)), file=sys.stderr, flush=True)
            self.send(id=id, ended="died with its Ray actor; ray.log has the reason")
            return
        if not worker.placed:
            worker.placed = True
            worker.ref = worker.actor.run.remote(worker.job, said)
            self.send(id=id, placed=said)
        else:
            del self._workers[id]
            self._ray.kill(worker.actor)
            self.send(id=id, ended=said)


def main() -> int:
    """Run until standard input closes. Returns 0 then, 1 if the cluster cannot be joined."""
    address = sys.argv[1]
    # Ray, and workers' logs through it, write to standard output: redirect that to the log, like errors.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=read_commands, args=(commands,), daemon=True).start()
    late = threading.Timer(CONNECT_S, give_up, (channel, f"no answer within {CONNECT_S:g} s"))
    late.daemon = True
    late.start()
    # Ray makes actors import modules from this process's folders: they must not run files from there.
    os.chdir(os.path.abspath(os.sep))
    sys.argv[:] = [""]
    ray: Any = importlib.import_module("ray")
    try:
        ray.init(address=address, log_to_driver=True, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        late.cancel()
        send_error(channel, str(error))
        return 1
    late.cancel()
    cluster = Cluster(ray, channel)
    cluster.send(joined=ray.__version__)
    while True:
        while not commands.empty():
            command = commands.get()
            if command is None:
                ray.shutdown()
                return 0
            cluster.handle(command)
        cluster.report()


def read_commands(commands: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Read the server's commands; None when standard input has closed."""
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put(None)


def give_up(channel: Any, found: str) -> None:
    """End this process, whatever Ray is doing."""
    send_error(channel, found)
    os._exit(1)


def send_error(channel: Any, found: str) -> None:
    """Report to the server why the cluster cannot be joined."""
    other = re.search(r"Version mismatch.*?Ray: (\S+)\s+Python: (\S+)", found, re.DOTALL)
    if other is not None:
        what = "the cluster's version of Ray or Python differs from this server's"
        do = f"use Python {other[2]} here, and run: pip install 'ray=={other[1]}'"
    else:
        what = "the Ray cluster cannot be joined"
        do = "make this machine a node of it: ray start --address=HOST:PORT (--num-cpus=0: without workers here)"
    channel.write(json.dumps({"error": what, "found": one_line(found), "do": do}) + "\n")
    channel.flush()


def one_line(text: str) -> str:
    """Shorten one of Ray's errors, which are paragraphs, to its first 300 characters."""
    return " ".join(text.split())[:300]


if __name__ == "__main__":
    sys.exit(main())
