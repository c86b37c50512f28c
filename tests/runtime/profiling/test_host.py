"""What a record says of the commit that was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from animegamer_rt import __version__
from animegamer_rt.profiling import host


def test_an_installed_package_names_the_commit_that_its_wheel_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(host.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(host, "checkout_folder", lambda: None)
    monkeypatch.setattr(host, "files", lambda package: tmp_path)
    assert host.commit() == f"v{__version__}", "a wheel that was built without git"
    (tmp_path / host.COMMIT_FILE).write_text("88df43a6cb\n", encoding="utf-8")
    assert host.commit() == "88df43a6cb"
