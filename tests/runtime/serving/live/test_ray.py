"""Workers on the nodes of a Ray cluster: games outlive workers, actors, nodes and the connection to Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from live_server import LiveServer, frames, until_timeout
from ray_clusters import FakeCluster

from animegamer_rt.errors import TRY_AGAIN, ClusterError
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.ray_host import RayCluster

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the cluster in the place of Ray forks")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        yield cluster


def test_games_outlive_workers_actors_and_nodes_that_are_killed(
    bundle: Path, cluster: FakeCluster, tmp_path: Path
) -> None:
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
            server.await_status(
                lambda status: not psutil.pid_exists(worker.pid) and status["worker"]["state"] == "ready"
            )
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
