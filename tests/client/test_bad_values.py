"""Addresses, keys, numbers and paths that cannot be meant, and text of a server that would steer a terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth
from client.conformance.fake_server import FakeServer

from animegamer_client import Client, Display
from animegamer_client.__main__ import main

GOOD = "tcp://127.0.0.1:5570"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    zmq.auth.create_certificates(tmp_path, "mia")
    return tmp_path / "mia.key_secret"


@pytest.mark.parametrize(
    "address",
    [
        "tcp://%:5570",
        "tcp://-:5570",
        "tcp://a-:5570",
        "tcp://a..b:5570",
        "tcp://1.2.3:5570",
        "tcp://1.2.3.256:5570",
        "tcp://[::1:5570",
        "tcp://[::x]:5570",
        "tcp://::1:5570",
        "tcp://a b:5570",
        "tcp://é:5570",
        "tcp://h:٥٥٧٠",
        f"tcp://{'n' * 64}:5570",
        "tcp://:5570",
        "",
    ],
    ids=ascii,
)
def test_an_address_of_nothing_is_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(["status", address]) == 2
    except SystemExit as stopped:
        assert stopped.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "address", ["localhost:1", "a_b-c.example.:1", "127.0.0.1:1", "[::1]:1", "tcp://[fe80::1%eth0]:1"]
)
def test_hosts_of_every_kind_are_taken(address: str) -> None:
    Client(address).close()


@pytest.mark.parametrize(
    "key",
    ["~" * 40, "#" * 40, "0" * 39, "0" * 41, "0" * 39 + "é", " " * 40, "a\0b", "n" * 5000],
    ids=lambda key: ascii(key[:9]),
)
def test_a_key_that_is_none_is_one_line(keys: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", GOOD, "--server-key", key, "--client-keys", str(keys)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and "keys new" in said


@pytest.mark.parametrize("key", ["0" * 39, "~" * 40, "#" * 40, ""])
@pytest.mark.parametrize("kind", ["public", "secret"])
def test_a_file_of_half_a_key_is_one_line(keys: Path, kind: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    pair = zmq.auth.load_certificate(keys)
    whole = pair[0 if kind == "public" else 1]
    assert whole is not None
    keys.write_text(keys.read_text().replace(whole.decode(), key))
    server = keys.with_suffix(".key")
    assert main(["status", GOOD, "--server-key", str(server), "--client-keys", str(keys)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1


@pytest.mark.parametrize("address", [None, 5, GOOD.encode()])
def test_an_address_of_another_type_is_a_value_error(address: Any) -> None:
    with pytest.raises(ValueError, match="not a server.s address"):
        Client(address)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("timeout_s", value) for value in ("3", None, 0, -1.0, float("nan"))),
        *(("jpeg_quality", value) for value in ("90", 1.5, 0, 101, None)),
        *((name, value) for name in ("flip", "clip") for value in ("no", 1, None)),
        *((name, value) for name in ("pixel_format", "codec") for value in ("RGB", 3, None)),
    ],
)
def test_an_option_of_another_type_or_range_is_a_value_error(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option} is .*; expected"):
        Client(GOOD, **{option: value})


@pytest.mark.parametrize("fps", [0, -8.0, float("nan")])
def test_a_display_of_no_rate_is_a_value_error(fps: float) -> None:
    with pytest.raises(ValueError, match="fps is .*; expected"):
        Display[str](fps)


def test_a_number_as_picture_is_no_descriptor_of_the_program(server: FakeServer) -> None:
    with open(os.devnull) as mine, Client(server.address, timeout_s=5) as client:
        picture: Any = mine.fileno()
        with pytest.raises(ValueError, match="the picture is a int; expected a path"):
            client.open(picture=picture, motion="gently wave")
        assert mine.read() == "", "the program's own file is still open"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_as_picture_is_not_waited_for(server: FakeServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "start.png")
    with Client(server.address, timeout_s=5) as client, pytest.raises(OSError, match="Not a regular file"):
        client.open(picture=tmp_path / "start.png", motion="gently wave")


def test_a_seed_of_an_earlier_game_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["play", GOOD, "--resume", "token", "--seed", "3"])
    assert "--seed starts a new game" in capsys.readouterr().err


def test_a_server_does_not_steer_the_terminal(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.state = "x\x1b[31m\x07\u202e"
    main(["status", server.address])
    said = capsys.readouterr().out
    assert not set("\x1b\x07\u202e") & set(said) and "x\\x1b[31m\\x07\\u202e" in said
