"""The client against a real server: README's code, exactness, a server that dies, keys."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest
from client.conformance import run as conformance
from live_server import LiveServer

from animegamer_client import Client, ClientError, Done, Event, Frame, Restarting, aio
from animegamer_client.__main__ import main
from animegamer_rt.serving.server import curve_keys
from client import driver_stories as stories

README = Path(__file__).parents[2] / "client" / "python" / "README.md"
TEXTS = ("Mia waves.", "Tobo runs to the forest.", "Mia flies on a kite.")


@pytest.fixture(scope="module")
def shared_server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(bundle, tmp_path_factory.mktemp("state"), turns_per_minute=0) as server:
        yield server.ready()


@pytest.fixture
def address(shared_server: LiveServer) -> str:
    return f"tcp://127.0.0.1:{shared_server.port}"


def pictures(events: list[Event]) -> list[bytes]:
    """The pictures of a whole turn; fails unless every event came once, in order."""
    numbered = [event for event in events if not isinstance(event, Restarting)]
    assert [event.seq for event in numbered] == list(range(len(numbered)))
    assert isinstance(numbered[-1], Done)
    frames = [event for event in numbered if isinstance(event, Frame)]
    assert [frame.index for frame in frames] == list(range(17))
    return [frame.pixels.tobytes() for frame in frames]


@pytest.fixture(scope="module")
def truth(shared_server: LiveServer) -> list[list[bytes]]:
    """The pictures of TEXTS with seed 3, played without a fault."""
    with Client(f"tcp://127.0.0.1:{shared_server.port}") as client:
        game = client.open(seed=3)
        return [pictures(list(game.turn(text))) for text in TEXTS]


def test_code_of_readme_runs_as_it_stands(address: str) -> None:
    text = README.read_text(encoding="utf-8")
    plain, concurrent = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for code in (plain, concurrent):
        assert "tcp://127.0.0.1:5570" in code
    done = [
        subprocess.run(
            [sys.executable, "-c", code.replace("tcp://127.0.0.1:5570", address)],
            cwd=README.parent,
            capture_output=True,
            text=True,
        )
        for code in (plain, concurrent)
    ]
    assert [run.returncode for run in done] == [0, 0], [run.stderr for run in done]
    assert done[0].stdout.count("(16, 24, 3) uint8") == 17 and "turn 1 took" in done[0].stdout
    assert done[1].stdout == "[17, 17]\n"


def test_resumed_rewound_and_branched_games_are_exact(address: str, truth: list[list[bytes]]) -> None:
    with Client(address) as client:
        token = client.open(seed=3).token
    for n, text in enumerate(TEXTS):
        with Client(address) as client:
            game = client.open(resume=token)
            assert game.turns == n
            assert pictures(list(game.turn(text))) == truth[n]
    with Client(address) as client:
        game = client.open(resume=token)
        assert [entry.instruction for entry in game.log()] == list(TEXTS)
        other = game.branch(1)
        assert pictures(list(other.turn(TEXTS[1]))) == truth[1]
        game.rewind(2)
        assert pictures(list(game.turn(TEXTS[2]))) == truth[2]
        assert pictures(list(game.replay(1))) == truth[0]
        assert (game.turns, other.turns) == (3, 2)


def test_asyncio_games_side_by_side_are_the_same(address: str, truth: list[list[bytes]]) -> None:
    async def play(client: aio.Client) -> list[list[bytes]]:
        game, clips = await client.open(seed=3), []
        for text in TEXTS:
            clips.append(pictures([event async for event in game.turn(text)]))
        return clips

    async def main() -> list[list[list[bytes]]]:
        async with aio.Client(address) as client:
            return list(await asyncio.gather(*(play(client) for _ in range(3))))

    assert asyncio.run(main()) == [truth] * 3


def test_a_killed_server_is_resumed(bundle: Path, tmp_path: Path) -> None:
    with stories.started(conformance.PYTHON) as driver:
        stories.DriverStories().test_a_killed_server_is_resumed(driver, bundle, tmp_path)


def test_keys_let_in_those_on_the_list_only(bundle: Path, tmp_path: Path) -> None:
    """Each refusal says what may be wrong."""
    mine, players = tmp_path / "keys", tmp_path / "players"
    server_key, _ = curve_keys.new("server", mine)
    other_key, stranger = curve_keys.new("stranger", tmp_path / "elsewhere")
    _, friend = curve_keys.new("friend", players)
    with LiveServer(bundle, tmp_path / "state", "--keys", str(mine), "--authorized-keys", str(players)) as server:
        at = f"tcp://127.0.0.1:{server.ready().port}"
        with Client(at, server_key=server_key, client_keys=friend) as client:
            pictures(list(client.open(seed=3).turn("Mia waves.")))
            assert client.status()["state"] == "ready", "the control connection has keys, too"
        unlisted = {"server_key": server_key, "client_keys": stranger}
        wrong = {"server_key": other_key, "client_keys": friend}
        refused: tuple[dict[str, Any], ...] = (unlisted, wrong, {})
        for keys in refused:
            with pytest.raises(ClientError, match="key"), Client(at, timeout_s=1.0, **keys):
                pass


def test_terminal_game_writes_real_clips(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "story.txt"
    script.write_text("\n".join(TEXTS), encoding="utf-8")
    with script.open(encoding="utf-8") as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        assert main(["play", address, "--seed", "3", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("motion level") == 3
    names = sorted(path.name for path in (tmp_path / "out").glob("*.mp4"))
    assert names == ["turn-001.mp4", "turn-002.mp4", "turn-003.mp4"]
    with av.open(str(tmp_path / "out" / names[0])) as container:
        assert sum(1 for _ in container.decode(video=0)) == 17
    assert main(["status", address]) == 0
