"""What only the asyncio client has: games side by side, and tasks that are cancelled; test_client.py has the rest."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client.conformance.fake_server import FakeServer

import animegamer_client
from animegamer_client import ClientError, Progress, aio


def run(server: FakeServer, play: Callable[[aio.Client], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with aio.Client(server.address, timeout_s=5, **options) as client:
            return await asyncio.wait_for(play(client), 30)

    return asyncio.run(main())


def test_names_and_signatures_are_those_of_the_plain_client() -> None:
    for name in ("Client", "Game", "Turn"):
        plain, twin = getattr(animegamer_client, name), getattr(aio, name)
        names, others = ({entry for entry in dir(kind) if not entry.startswith("_")} for kind in (plain, twin))
        assert names == others
        methods = [entry for entry in names if callable(getattr(plain, entry))]
        for method in ["__init__", *methods] if name == "Client" else methods:
            signatures = [inspect.signature(getattr(kind, method)) for kind in (plain, twin)]
            assert signatures[0].parameters == signatures[1].parameters, f"{name}.{method}"


def test_turn_that_is_left_at_once_is_cancelled_though_the_cancel_came_first(server: FakeServer) -> None:
    server.faults[3], server.early_cancels, server.event_s = "hold", 1, 0.1

    async def play(client: aio.Client) -> None:
        game = await client.open()
        turn = game.turn("Mia waves.")
        first = asyncio.ensure_future(anext(turn))
        await asyncio.sleep(0)
        first.cancel()
        await turn.close()
        server.event_s = 0.0
        assert len([event async for event in game.turn("Mia runs.")]) == 8 and game.turns == 1

    run(server, play)
    asked = [kind for kind in server.kinds() if kind in ("turn", "cancel")]
    assert sorted(asked[:3]) == ["cancel", "cancel", "turn"] and asked[3:] == ["turn"]


def test_cancelled_task_cancels_its_turn(server: FakeServer) -> None:
    server.faults[3] = "hold"

    async def play(client: aio.Client) -> None:
        game = await client.open()
        started = asyncio.Event()

        async def follow() -> None:
            async for event in game.turn("Mia waves."):
                if isinstance(event, Progress):
                    started.set()

        task = asyncio.create_task(follow())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        assert [event async for event in game.turn("Mia runs.")][-1].turn == 1

    run(server, play)
    assert server.kinds().count("cancel") == 1


def test_client_of_an_ended_loop_says_so_and_can_be_closed(server: FakeServer) -> None:
    client = aio.Client(server.address, timeout_s=5)
    game = asyncio.run(client.open())
    for call in (client.status, client.open, game.log):
        with pytest.raises(ClientError, match="another event loop; create one in each"):
            asyncio.run(call())
    asyncio.run(client.close())
    assert client.closed
