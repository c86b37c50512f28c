"""Workers on the nodes of a Ray cluster: games outlive workers, actors, nodes and the connection to Ray; what a node
lacks is said in a line."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from client.conformance.ports import ReservedPorts
from live_server import LiveServer, frames, until_timeout

import fakes
from animegamer_rt import __version__
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import TRY_AGAIN, ClusterError, ConfigError
from animegamer_rt.serving.cluster.node import NodeJob, find_bundle, run_worker
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.ray_host import RayCluster, own_address, resources
from animegamer_rt.serving.server.sockets import ServerSockets

FAKE_RAY = Path(__file__).parents[3] / "fakes" / "fake_ray"


class FakeCluster:
    """The cluster that the package in tests/fakes/fake_ray sees in the place of Ray's."""

    def __init__(self, folder: Path) -> None:
        self._file, self._number = folder / "cluster.json", 0
        self._described: dict[str, Any] = {"nodes": {}, "refused": ""}
        self._write()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.environment = {
            "FAKE_RAY": str(self._file),
            "PYTHONPATH": os.pathsep.join([str(FAKE_RAY), os.environ.get("PYTHONPATH", "")]),
        }

    def add_node(self) -> str:
        self._number += 1
        self._described["nodes"][f"node-{self._number}"] = 1
        self._write()
        return f"node-{self._number}"

    def kill_node(self, node: str) -> None:
        del self._described["nodes"][node]
        self._write()

    def workers(self, server: int) -> list[psutil.Process]:
        """The processes that own engines. server: its process id."""
        found = []
        for process in psutil.Process(server).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "animegamer_rt.serving.worker" in process.cmdline():
                    found.append(process)
        return found

    def refuse(self, text: str) -> None:
        """Joining fails with this error from now on."""
        self._described["refused"] = text
        self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._described))
        new.replace(self._file)

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the cluster in the place of Ray forks")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        yield cluster


def test_games_outlive_killed_workers_actors_and_nodes(bundle: Path, cluster: FakeCluster, tmp_path: Path) -> None:
    first = cluster.add_node()
    with LiveServer(bundle, tmp_path / "state", "--ray", cluster.address, device="simulated:0.4") as server:
        with server.ready().client() as player:
            game = player.open(seed=21)
            expected = [frames(player.play(game, text)) for text in ("Mia waves.", "Tobo runs.")]
            for lost in ("worker", "actor", "node"):
                game = player.open(seed=21)
                assert frames(player.play(game, "Mia waves.")) == expected[0]
                if lost == "node":
                    cluster.add_node()
                (worker,) = cluster.workers(server.process.pid)
                actor = worker.parent()
                assert actor is not None
                turn = player.begin(game, "Tobo runs.")
                events = player.until(turn, "state")
                if lost == "node":
                    cluster.kill_node(first)
                else:
                    (worker if lost == "worker" else actor).send_signal(signal.SIGKILL)
                events += player.rest(turn)
                assert frames(events) == expected[1], f"bit-equal, numbered on, nothing twice: {lost}"
                assert "restarting" in {event.type for event in events}, lost
            assert any(not psutil.pid_exists(worker.pid) for _ in until_timeout())
            server.await_status(lambda status: status["worker"]["state"] == "ready")
            assert frames(player.play(player.open(seed=21), "Mia waves.")) == expected[0], "on the node that is left"
            export = player.ask("export", {"token": game.token}, session=game.session, answer="error")
            assert export.fields["code"] == "unknown_type" and "on other machines" in export.fields["text"]
        status = server.status()
        assert status["worker"]["restarts"] == 3 and "pid" not in status["worker"]
        left = cluster.workers(server.process.pid)
        assert server.end() == 0
        assert any(not any(one.is_running() for one in left) for _ in until_timeout()), "its workers end with it"


def test_a_server_outlives_its_connection_to_ray(bundle: Path, cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.add_node()
    with LiveServer(bundle, tmp_path / "state", "--ray", cluster.address) as server:
        with server.ready().client() as player:
            game = player.open(seed=21)
            player.play(game, "Mia waves.")
            (driver,) = psutil.Process(server.process.pid).children()
            driver.send_signal(signal.SIGKILL)
            assert frames(player.play(game, "Tobo runs."))
        assert "the connection to Ray was lost; found exit code -9" in server.status()["worker"]["last_error"]


def test_a_cluster_that_cannot_be_joined_is_said_in_one_line(cluster: FakeCluster, tmp_path: Path) -> None:
    def refused() -> str:
        with pytest.raises(ClusterError) as found:
            RayCluster(ServeOptions(ray=cluster.address, state_dir=tmp_path)).join()
        assert found.value.exit_code == TRY_AGAIN
        return str(found.value)

    cluster.refuse(
        "Version mismatch: The cluster was started with:\n    Ray: 2.44.1\n    Python: 3.10.12\n"
        "This process on node 192.0.2.63 was started with:\n    Ray: 9.9.9\n    Python: 3.12.13\n"
    )
    assert "use Python 3.10.12 here, and run: pip install 'ray==2.44.1'" in refused()
    cluster.refuse("Can't find a `node_ip_address.json` file")
    assert "make this machine a node of it: ray start --address=HOST:PORT" in refused()


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
    said = run_worker(older, "10.0.0.7")
    assert "animegamer-rt" in said and "the server 0.0.1; install the same" in said
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
    with contextlib.closing(ServerSockets(ServeOptions(port=0), worker_host="127.0.0.1")) as sockets:
        (worker_socket, address), *_ = sockets.workers
        with zmq.Context() as context, context.socket(zmq.DEALER) as worker:
            worker.linger = 0
            worker.curve_publickey, worker.curve_secretkey = zmq.curve_keypair()
            worker.curve_serverkey = sockets.worker_key if told else zmq.curve_keypair()[0]
            worker.connect(address)
            worker.send(b"loading")
            assert bool(worker_socket.poll(10_000 if told else 300)) == told
