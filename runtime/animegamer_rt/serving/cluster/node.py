"""Runs one worker on a node of the cluster: finds the server and the bundle, starts the process, waits for its end.

The worker's standard input is a pipe that nobody writes to. It closes when this process, Ray's actor, dies, which ends
the worker.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TypedDict

from animegamer_rt.bundle.loader import Bundle, read
from animegamer_rt.bundle.search import find
from animegamer_rt.errors import AnimeGamerError, BundleError
from animegamer_rt.profiling.child_process import child_command, describe_end
from animegamer_rt.serving.wire.client_errors import in_own_words
from animegamer_rt.serving.wire.codec import WORKER_SECRET, WORKER_SERVER_KEY
from animegamer_rt.untrusted import bracketed
from animegamer_rt.version import __version__

REACH_S = 5.0


class NodeJob(TypedDict):
    """What a node needs to run a worker. Sent as JSON.

    host, port, server_key: of the server's socket for this worker. bundles: folders or names to search for the bundle
    with the `fingerprint`. version: of animegamer-rt at the server. arguments: the worker's other options.
    """

    host: str
    port: int
    server_key: str
    secret: str
    bundles: list[str]
    fingerprint: str
    version: str
    arguments: list[str]


def run_worker(job: NodeJob, node: str) -> str:
    """Run a worker until it ends. node: this machine's address. Returns how it ended, as words that follow its name.

    Clients may read them, so they are not those of an exception.
    """
    where = f"could not start on node {node}"
    if job["version"] != __version__:
        return f"{where}: it has animegamer-rt {__version__}, the server {job['version']}; install the same version"
    try:
        socket.create_connection((job["host"], job["port"]), REACH_S).close()
    except OSError as error:
        address = f"{job['host']}:{job['port']}"
        do = "give serve --ray the address by which nodes reach the cluster's head, and open the port"
        return f"{where}: it cannot reach the server at {address} ({error.strerror or error}); {do}"
    try:
        bundle = find_bundle(job["bundles"], job["fingerprint"])
    except AnimeGamerError as error:  # also from the hub, or of a full disk
        print(f"{where}: {error}", file=sys.stderr, flush=True)
        return f"{where}: {in_own_words(error)}"
    command = child_command("animegamer_rt.serving.worker", "--server", f"tcp://{bracketed(job['host'])}:{job['port']}")
    command += ["--bundle", str(bundle.folder), *job["arguments"]]
    environment = {**os.environ, WORKER_SECRET: job["secret"], WORKER_SERVER_KEY: job["server_key"]}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            # Ray forwards it to the server's log.
            print(line.decode(errors="replace").rstrip(), file=sys.stderr, flush=True)
    return f"on node {node} {describe_end(process.returncode)}"


def find_bundle(places: list[str], fingerprint: str) -> Bundle:
    """The bundle with this fingerprint in these folders or names. Raises BundleError listing what was found."""
    found: list[str] = []
    for place in places:
        try:
            bundle = read(find(place))  # the worker verifies its files
        except BundleError as error:
            found.append(error.what)
            continue
        if bundle.fingerprint == fingerprint:
            return bundle
        found.append(f"{place}: {bundle.fingerprint}")
    what = "this node does not have the server's bundle"
    do = f"copy it to {places[0]} on the node"
    raise BundleError(what, found="; ".join(found), expected=fingerprint, do=do)
