"""The files for containers fit the server: alerts and board ask for what its page has, mounts and ports are right.

No image is built here. What they say in their own languages (Dockerfile, PromQL) is not checked.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from project import ROOT
from prometheus_client import generate_latest

from animegamer_rt.serving.server.metrics import Metrics
from animegamer_rt.serving.server.options import PORT
from animegamer_rt.serving.wire.schema import CODES, STAGES

DOCKER = ROOT / "docker"


def read(name: str) -> Any:
    return yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))


def alerts() -> dict[str, str]:
    """Name -> expression."""
    rules = [rule for group in read("alerts.yml")["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["expr"] for rule in rules}


def board_queries() -> list[str]:
    board = json.loads((DOCKER / "grafana" / "board.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def names_on_the_page() -> set[str]:
    """Of a server that has sent one error."""
    metrics = Metrics()
    metrics.errors.labels("deadline").inc()
    return set(re.findall(r"^(animegamer_\w+)", generate_latest(metrics.registry).decode(), re.MULTILINE))


def test_alerts_and_board_ask_for_metrics_and_labels_that_the_server_has(names_on_the_page: set[str]) -> None:
    assert set(alerts()) == {"TurnsLost", "WorkerRestarts", "QueueWait"}
    queries = [*alerts().values(), *board_queries()]
    for query in queries:
        asked = set(re.findall(r"animegamer_\w+", query))
        assert asked <= names_on_the_page and (asked or "ALERTS" in query), query
    known = {"code": set(CODES), "stage": set(STAGES), "alertstate": {"firing", "pending"}}
    for label, values in re.findall(r'(\w+)=~?"([^"]*)"', " ".join(queries)):
        assert set(values.split("|")) <= known[label], (label, values)
    assert set(re.findall(r"`(\w+)`", docs_row("TurnsLost"))) == set(
        re.findall(r'code=~"([^"]*)"', alerts()["TurnsLost"])[0].split("|")
    )


def docs_row(alert: str) -> str:
    page = (ROOT / "docs" / "SERVER.md").read_text(encoding="utf-8")
    return next(line for line in page.splitlines() if line.startswith(f"| {alert} |"))


def test_what_is_mounted_is_there_and_prometheus_reads_the_servers_port() -> None:
    compose = read("compose.yml")
    for service in compose["services"].values():
        for mount in service["volumes"]:
            source = mount.partition(":")[0]
            assert source in compose["volumes"] or (DOCKER / source).is_file(), mount
    build = compose["services"]["server"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == DOCKER / "Dockerfile"
    (job,) = read("prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{PORT + 2}"]}]
    assert read("prometheus.yml")["rule_files"] == ["alerts.yml"]


def test_the_image_gets_every_file_that_its_install_reads() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "client/python"} <= let_in
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (packed,) = re.findall(r"^only-include = \[([^\]]*)\]$", project, re.MULTILINE)
    folders = re.findall(r'"(.+)"', packed)
    assert folders and all(any(folder.startswith(name) for name in let_in) for folder in folders)
