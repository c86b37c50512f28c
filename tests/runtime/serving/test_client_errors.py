"""What a client is told of an error: what is wrong, and no path of the server."""

from __future__ import annotations

from typing import Any

from animegamer_rt.errors import AnimeGamerError, ConfigError, OutputError
from animegamer_rt.serving.wire.client_errors import client_text, without_folders


def test_a_client_is_told_what_is_wrong_and_no_path(tmp_path: Any) -> None:
    error: AnimeGamerError = OutputError("cannot be written", where=tmp_path / "state", found="no space left on device")
    assert client_text(error) == "cannot be written; found no space left on device"
    error = ConfigError("not a table", where=f"{tmp_path}/manifest.json: sizes of vae", found=r"C:\games\pocket\x.onnx")
    assert client_text(error) == "manifest.json: sizes of vae: not a table; found x.onnx"
    for text in ("tcp://127.0.0.1:5570", "3/4 of it, and/or more", "1.2 MiB/s", "ask http://example.org/a/b"):
        assert without_folders(text) == text
