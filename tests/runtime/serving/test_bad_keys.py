"""Key files that are cut short or damaged: `serve` names the file before anybody connects."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq.auth

import fakes
from animegamer_rt.cli import main


@pytest.mark.parametrize("key", ["0" * 39, "~" * 40, "#" * 40, ""])
@pytest.mark.parametrize("name", ["server.key_secret", "mia.key"])
def test_a_damaged_key_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, key: str) -> None:
    for owner, folder in (("server", "keys"), ("mia", "players")):
        assert main(["keys", "new", owner, "--keys", str(tmp_path / folder)]) == 0
    path = tmp_path / ("keys" if name.startswith("server") else "players") / name
    public = zmq.auth.load_certificate(path)[0].decode()
    path.write_text(path.read_text().replace(public, key))
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    folders = ["--keys", str(tmp_path / "keys"), "--authorized-keys", str(tmp_path / "players")]
    served = ["serve", "--bundle", str(bundle), "--host", "0.0.0.0", "--state-dir", str(tmp_path / "state")]
    capsys.readouterr()
    assert main([*served, "--device", "simulated:0", "--port", "0", *folders]) == 2
    assert name in capsys.readouterr().err
