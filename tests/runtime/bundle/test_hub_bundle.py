"""Bundles named `hf:owner/name@revision`, from a hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import COMMIT, FakeHub, hub_of

from animegamer_rt.bundle.loader import find, open_bundle
from animegamer_rt.cli import main
from animegamer_rt.errors import BundleFileError, BundleNotFoundError, ConfigError, HubError

NAME = "somebody/pocket"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    hub = FakeHub()
    hub.publish(NAME, find("pocket"))
    with hub_of(hub, tmp_path):
        yield hub


def bundles(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "data" / "animegamer-rt" / "bundles").glob("*")]


def test_a_bundle_of_the_hub_is_downloaded_once_and_is_the_same(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = open_bundle(f"hf:{NAME}@main")
    assert bundle.fingerprint == open_bundle("pocket").fingerprint
    assert bundles(tmp_path) == [f"somebody--pocket@{COMMIT}"] and not (bundle.folder / ".parts").exists()
    assert {path.rpartition("/")[2] for path, _ in hub.downloads()} >= {"manifest.json", "tokenizer.model"}
    hub.asked.clear()
    assert main(["info", f"hf:{NAME}@{COMMIT}"]) == 0 and "pocket" in capsys.readouterr().out
    assert not hub.asked  # a whole commit needs no network


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("tokenizer.model", lambda content: content[:-1] + b"?", "does not match its manifest"),
        ("tokenizer.model", None, "lacks a file of its manifest"),
    ],
)
def test_a_repository_that_breaks_its_manifest_is_refused_and_nothing_stays(
    hub: FakeHub, tmp_path: Path, file: str, change: object, said: str
) -> None:
    content = hub.repositories[NAME].pop(file)
    if callable(change):
        hub.repositories[NAME][file] = change(content)
    with pytest.raises(BundleFileError, match=f"{NAME}/{file}: .*{said}.*the download was deleted"):
        open_bundle(f"hf:{NAME}@main")
    assert bundles(tmp_path) == []


def test_a_broken_download_is_no_bundle_and_goes_on_when_asked_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.cut["tokenizer.model"] = 0
    with pytest.raises(HubError, match="run it again"):
        open_bundle(f"hf:{NAME}@main")
    assert bundles(tmp_path) == [f".somebody--pocket@{COMMIT}"]
    del hub.cut["tokenizer.model"]
    hub.asked.clear()
    assert open_bundle(f"hf:{NAME}@main").manifest.name == "pocket"
    assert bundles(tmp_path) == [f"somebody--pocket@{COMMIT}"]
    assert len(hub.downloads()) < len(hub.repositories[NAME])  # what had come is not asked for again


def test_a_name_without_revision_and_a_repository_without_bundle_are_said(hub: FakeHub) -> None:
    with pytest.raises(ConfigError, match="expected hf:owner/name@revision.*as in hf:owner/name@main"):
        open_bundle(f"hf:{NAME}")
    hub.repositories["somebody/else"] = {"README.md": b"nothing"}
    with pytest.raises(BundleNotFoundError, match="somebody/else: the repository is not a bundle"):
        open_bundle("hf:somebody/else@main")
