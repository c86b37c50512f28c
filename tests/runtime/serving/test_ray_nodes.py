"""What a node or the server's machine may lack for workers in a Ray cluster: a line says what, and what to do."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from client.conformance.ports import ReservedPorts

import fakes
from animegamer_rt import __version__
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ClusterError, ConfigError
from animegamer_rt.serving.cluster.node import NodeJob, find_bundle, run_worker
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.ray_host import own_address, resources
from animegamer_rt.serving.server.sockets import ServerSockets


@pytest.fixture
def job(tmp_path: Path) -> Iterator[NodeJob]:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield NodeJob(
            host="127.0.0.1",
            port=listener.getsockname()[1],
            server_key="",
            secret="",
            bundles=[str(bundle.folder)],
            fingerprint=bundle.fingerprint,
            version=__version__,
            arguments=[],
        )


def test_a_node_that_cannot_run_a_worker_says_what_to_do(job: NodeJob, tmp_path: Path) -> None:
    other: NodeJob = {**job, "fingerprint": "81aa"}
    assert f"found {job['fingerprint']}; expected 81aa; copy it to {tmp_path}" in run_worker(other, "10.0.0.7").replace(
        f"{tmp_path}/tiny: ", ""
    )
    older: NodeJob = {**job, "version": "0.0.1"}
    assert "animegamer-rt" in run_worker(older, "10.0.0.7") and "the server 0.0.1; install the same" in run_worker(
        older, "n"
    )
    with ReservedPorts() as closed:
        said = run_worker({**job, "port": closed.port}, "10.0.0.7")
    assert said.startswith("could not start on node 10.0.0.7: it cannot reach the server at 127.0.0.1:")
    assert "Connection refused" in said


def test_a_bundle_is_found_by_its_hash_wherever_the_node_has_it(job: NodeJob, tmp_path: Path) -> None:
    places = [str(tmp_path / "not here"), "pocket", *job["bundles"]]
    assert str(find_bundle(places, job["fingerprint"]).folder) == job["bundles"][0]


def test_ray_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"Ray is not installed; run: pip install 'animegamer-rt\[ray\]'"):
        own_address("127.0.0.1:6379")


def test_an_address_where_no_cluster_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    with pytest.raises(ConfigError, match="expected HOST:PORT; give the address that `ray start --head` printed"):
        own_address("ray://head:10001")
    with ReservedPorts() as ports:
        with socket.create_server(("127.0.0.1", ports.port)):
            assert own_address(f"127.0.0.1:{ports.port}") == "127.0.0.1", "where nodes find the server"
        with pytest.raises(
            ClusterError, match="no Ray cluster answers; found Connection refused; start one with: ray start"
        ):
            own_address(f"127.0.0.1:{ports.port}")


def test_a_worker_asks_ray_for_its_cores_or_a_gpu() -> None:
    assert resources(EngineConfig("cpu")) == (EngineConfig("cpu", threads=1), 1, 0)
    assert resources(EngineConfig("cpu", threads=4)) == (EngineConfig("cpu", threads=4), 4, 0)
    assert resources(EngineConfig("torch")) == (EngineConfig("torch"), 1, 1)


@pytest.mark.parametrize("told", [True, False])
def test_only_who_was_told_the_key_of_a_workers_socket_is_heard(told: bool) -> None:
    sockets = ServerSockets(ServeOptions(port=0), worker_host="127.0.0.1")
    try:
        (worker_socket, address), *_ = sockets.workers
        with zmq.Context() as context, context.socket(zmq.DEALER) as worker:
            worker.linger = 0
            worker.curve_publickey, worker.curve_secretkey = zmq.curve_keypair()
            worker.curve_serverkey = sockets.worker_key if told else zmq.curve_keypair()[0]
            worker.connect(address)
            worker.send(b"loading")
            assert bool(worker_socket.poll(10_000 if told else 300)) == told
    finally:
        sockets.close()
