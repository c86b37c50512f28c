"""The wire: golden bytes both ways, what is ignored, what is refused with which code, and what it costs in memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import golden_messages as golden
import pytest

from animegamer_rt.errors import AnimeGamerError, ConfigError, OutputError, ProtocolError
from animegamer_rt.serving.wire.client_errors import client_text, without_folders
from animegamer_rt.serving.wire.codec import (
    CLIENT_LIMITS,
    SERVER_LIMITS,
    WORKER_LIMITS,
    Limits,
    Message,
    decode,
    encode,
)
from animegamer_rt.serving.wire.schema import CODES, MAX_LISTED, MESSAGES
from animegamer_rt.state.game import STRENGTHS

LIMITS = {"client": CLIENT_LIMITS, "server": SERVER_LIMITS}


def test_golden_messages_are_read_and_written_to_the_byte() -> None:
    for vector in golden.MESSAGES:
        frames = golden.frames(vector)
        message = decode(frames, LIMITS[vector["sender"]])
        assert golden.header(message) == vector["header"], vector["name"]
        assert list(message.buffers) == frames[2:], vector["name"]
        assert not vector["canonical"] or encode(message) == frames, vector["name"]


@pytest.mark.parametrize("layer", ["frames", "fields"])
def test_broken_messages_are_refused_with_their_code(layer: str) -> None:
    for vector in golden.REFUSED:
        if vector["layer"] == layer:
            with pytest.raises(ProtocolError) as refusal:
                decode(golden.frames(vector), LIMITS[vector["sender"]])
            assert refusal.value.code == vector["code"] in CODES, vector["name"]


def test_every_kind_of_message_has_a_golden_one() -> None:
    there = {(vector["sender"], vector["header"]["type"]) for vector in golden.MESSAGES}
    assert there == {(kind.sender, kind.type) for kinds in MESSAGES.values() for kind in kinds.values()}


def test_buffers_are_not_copied() -> None:
    pixels = bytearray(16)
    fields = next(vector for vector in golden.MESSAGES if vector["name"] == "frame, raw")["header"]["fields"]
    frames = encode(Message("frame", fields, session="s", turn=1, seq=3, buffers=(memoryview(pixels),)))
    received = decode(frames, SERVER_LIMITS).buffers[0]
    pixels[5] = 77
    assert received[5] == 77


def test_a_game_without_end_fits_a_job() -> None:
    log = [["Character: Mia; Motion: gently wave; Background: day town.", 2, 1, 0, -1]] * 100_000
    job = Message("job", {"log": log}, buffers=(bytes(1000),) * 16)
    assert decode(encode(job), WORKER_LIMITS, check=False) == job


def test_a_full_page_of_the_longest_turns_fits_its_header() -> None:
    strengths = dict.fromkeys(STRENGTHS, -5)
    turn = {"turn": 2**62, "turn_id": "\U0001f600" * 64, "instruction": "\U0001f600" * 500, **strengths}
    page = Message("listed", {"turns": [turn] * MAX_LISTED, "more": True}, session="s")
    assert decode(encode(page), SERVER_LIMITS) == page
    with pytest.raises(ProtocolError, match="at most 100 items"):
        decode(encode(Message("listed", {"turns": [turn] * 101, "more": True}, session="s")), SERVER_LIMITS)


@pytest.mark.parametrize("limits", [CLIENT_LIMITS, SERVER_LIMITS])
def test_declared_sizes_take_no_memory(limits: Limits) -> None:
    for vector in golden.REFUSED:
        if "declared" in vector["name"] or "nested" in vector["name"]:
            frames = golden.frames(vector)
            tracemalloc.start()
            try:
                with pytest.raises(ProtocolError):
                    decode(frames, limits)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak <= 8 * limits.items * 1024 + 2**20, vector["name"]


def test_a_client_is_told_what_is_wrong_and_no_path(tmp_path: Any) -> None:
    error: AnimeGamerError = OutputError("cannot be written", where=tmp_path / "state", found="no space left on device")
    assert client_text(error) == "cannot be written; found no space left on device"
    error = ConfigError("not a table", where=f"{tmp_path}/manifest.json: sizes of vae", found=r"C:\games\pocket\x.onnx")
    assert client_text(error) == "manifest.json: sizes of vae: not a table; found x.onnx"
    for text in ("tcp://127.0.0.1:5570", "3/4 of it, and/or more", "1.2 MiB/s", "ask http://example.org/a/b"):
        assert without_folders(text) == text


def test_the_made_parts_are_current() -> None:
    command = [sys.executable, str(golden.ROOT / "client" / "vectors" / "make.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stderr
