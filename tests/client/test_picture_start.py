"""A game that starts from a picture, through the server: the bytes of `play --image`, also after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer
from PIL import Image

import animegamer_client
import animegamer_rt
from animegamer_client import Frame, ServerRefused, aio
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.video import write_png

POCKET = open_bundle("pocket").folder
MOTION, TEXTS, SEED = "gently wave", ["Tofi waves.", "Now at night."], 7


def encoded(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(side: int) -> bytes:
    """A PNG of some kilobytes that claims side x side pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(bytes(4 * 2**20), 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + rows + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def game_of_play(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A picture (of pocket's own: Tofi in the meadow), and hashes of the turns that the command plays from it."""
    picture = tmp_path_factory.mktemp("picture") / "start.png"
    with animegamer_rt.open("pocket", plan="fast", threads=1) as player:
        write_png(picture, player.start(seed=3).turn("Tofi waves gently in the meadow.").frames[0])
        game = player.start(seed=SEED, image=picture, motion=MOTION)
        clips = [game.turn(text).frames for text in TEXTS]
    return picture, [hashlib.sha256(clip.tobytes()).hexdigest() for clip in clips]


@pytest.fixture(scope="module")
def picture(game_of_play: tuple[Path, list[str]]) -> Path:
    return game_of_play[0]


@pytest.fixture(scope="module")
def played(game_of_play: tuple[Path, list[str]]) -> list[str]:
    return game_of_play[1]


def serve(state: Path) -> LiveServer:
    return LiveServer(POCKET, state, "--plan", "fast", "--threads", "1", device="cpu").ready()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serve(tmp_path_factory.mktemp("state")) as server:
        yield server


def address(server: LiveServer) -> str:
    return f"tcp://127.0.0.1:{server.port}"


def frames_hash(turn: animegamer_client.Turn) -> str:
    frames = [event for event in turn if isinstance(event, Frame)]
    return hashlib.sha256(b"".join(bytes(frame.data) for frame in frames)).hexdigest()


def test_pictures_of_all_kinds_start_games(server: LiveServer, picture: Path) -> None:
    source = Image.open(picture)
    kinds = [
        encoded(source, "JPEG"),
        encoded(source, "WEBP"),
        encoded(source.convert("L")),
        encoded(source.convert("RGBA").resize((60, 200))),
    ]

    async def open_all() -> list[aio.Game]:
        async with aio.Client(address(server)) as client:
            return await asyncio.gather(*(client.open(picture=one, motion=MOTION) for one in kinds))

    assert len({game.token for game in asyncio.run(open_all())}) == len(kinds)


def test_pictures_that_cannot_start_a_game_are_refused_and_nothing_is_lost(server: LiveServer, picture: Path) -> None:
    good, restarts = picture.read_bytes(), server.status()["worker"]["restarts"]
    gif = encoded(Image.new("P", (64, 64)), "GIF", save_all=True, append_images=[Image.new("P", (64, 64), 3)])
    refused = [
        (b"", "no image data"),
        (b"<svg/>" * 100, "no image data"),
        (good[: len(good) // 2], "a truncated file"),
        (encoded(Image.new("RGB", (1, 1))), "too small; found 1 x 1; expected 16 x 16 pixels or more"),
        (encoded(Image.new("L", (5000, 4000)), "JPEG"), "too large, .*expected at most 16 megapixels"),
        (gif, "no image data; expected a PNG, JPEG or WebP file"),
        (bomb(16_000), "too large; found 16000 x 16000"),
        (bomb(2**31 - 1), "too large"),
    ]
    with animegamer_client.Client(address(server)) as client, server.client(minor=2) as raw:
        game = client.open(seed=SEED)
        assert frames_hash(game.turn(TEXTS[0]))
        for content, said in refused:
            with pytest.raises(ServerRefused, match=said) as error:
                client.open(picture=content, motion=MOTION)
            assert error.value.code == "picture"
        for motion, code in (("", "instruction"), ("Character: Tofi.", "instruction")):
            with pytest.raises(ServerRefused) as error:
                client.open(picture=good, motion=motion)
            assert error.value.code == code
        with pytest.raises(ValueError, match="larger than 8 MiB"):
            client.open(picture=bytes(9 * 2**20), motion=MOTION)
        for fields, buffers, code in (
            ({}, (good,), "missing_field"),
            ({"motion": MOTION, "history_turns": 0}, (good,), "bad_field"),
            ({"motion": MOTION}, (bytes(8 * 2**20 + 1),), "too_large"),
            ({"motion": MOTION}, (good, good), "too_large"),
        ):
            raw.send("open", fields, buffers=buffers)
            answer = raw.receive()
            assert answer.fields["code"] == code and answer.session is None
        assert frames_hash(game.turn(TEXTS[1])) and game.turns == 2
    assert server.status()["worker"]["restarts"] == restarts


def test_server_that_cannot_says_so_and_older_clients_see_no_difference(tmp_path: Path, picture: Path) -> None:
    with LiveServer(POCKET, tmp_path, "--plan", "fast", device="simulated:0").ready() as server:
        with animegamer_client.Client(address(server)) as client:
            assert "picture" not in client.connect().capabilities
            with pytest.raises(ServerRefused, match="cannot start a game from a picture") as error:
                client.open(picture=picture, motion=MOTION)
            assert error.value.code == "no_encoder" and "encoder parts" in str(error.value)


def test_turns_are_those_of_play_over_restart_replay_branch_and_export(
    server: LiveServer, picture: Path, played: list[str]
) -> None:
    with animegamer_client.Client(address(server)) as client:
        assert "picture" in client.connect().capabilities
        game = client.open(picture=picture, motion=MOTION, seed=SEED)
        assert game.turns == 0 and game.seen is not None
        assert [one.name for one in game.seen.people] == ["Tofi"] and game.seen.motion == "wave"
        assert frames_hash(game.turn(TEXTS[0])) == played[0]
        token = game.token
    assert server.end() == 0
    with serve(server.state) as server, animegamer_client.Client(address(server)) as client:
        game = client.open(resume=token)
        assert frames_hash(game.turn(TEXTS[1])) == played[1]
        assert frames_hash(game.replay(1)) == played[0]
        branch = game.branch(0)
        assert [frames_hash(branch.turn(text)) for text in TEXTS] == played
        record = json.loads((Path(branch.export().folder) / "game.json").read_text(encoding="utf-8"))
        assert [turn["frames_sha256"] for turn in record["turns"]] == played
