"""What a release has for game developers; tests/archives_play.py plays it."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

import animegamer_rt
import archives_play
from client import engine_archives

NATIVE = Path(__file__).parents[2] / "client" / "native"


def test_archives_have_the_runtimes_version_and_the_repositorys_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/a-game")
    unity, unreal = engine_archives.pack_unity(tmp_path), engine_archives.pack_unreal(tmp_path)
    cmake = (NATIVE / "CMakeLists.txt").read_text(encoding="utf-8")
    native = f"animegamer-native-{re.findall(r'VERSION ([0-9]+[.][0-9.]+) ', cmake)[-1]}"
    names = unity.name, unreal.name, f"{native}-linux-x86_64.tar.gz", f"{native}-windows-x86_64.zip"
    for name, pattern in zip(names, archives_play.PLAYS, strict=True):
        assert fnmatch(name, pattern)
    with tarfile.open(unity) as packed:
        files = packed.getnames()
        manifest = json.loads(packed.extractfile("package/package.json").read())  # type: ignore[union-attr]
        assert sum(member.size for member in packed.getmembers()) < 500_000
    assert "package/Samples~/SaySomething/SaySomething.unity.meta" in files
    assert not any("Tests~" in name for name in files)
    page = f"https://example.org/somebody/a-game/blob/v{animegamer_rt.__version__}/client/unity/CHANGELOG.md"
    assert manifest["changelogUrl"] == page and "package/CHANGELOG.md" in files
    with zipfile.ZipFile(unreal) as packed_plugin:
        descriptor = json.loads(packed_plugin.read("AnimeGamer/AnimeGamer.uplugin"))
        assert "AnimeGamer/Source/AnimeGamerNative/Private/client.cpp" in packed_plugin.namelist()
    assert descriptor["SupportURL"] == "https://example.org/somebody/a-game/issues"
