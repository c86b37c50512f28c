"""Threads that share one client: none waits for another's answer, and each gets its own events or a sentence."""

from __future__ import annotations

import os
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest
from client.conformance.fake_server import FakeServer

from animegamer_client import Client, ClientError, ServerRefused
from client.test_game_goes_on import assert_whole


def test_games_of_one_client_are_played_in_threads_side_by_side(server: FakeServer) -> None:
    with Client(server.address, timeout_s=10) as client, ThreadPoolExecutor(6) as threads:
        for events in threads.map(lambda _: list(client.open(seed=3).turn("Mia waves.")), range(24)):
            assert_whole(events)


def test_cancel_does_not_wait_for_a_status_that_is_not_answered_and_close_ends_it(server: FakeServer) -> None:
    server.faults[3] = "hold"
    server.unanswered["status"] = 99
    with Client(server.address, timeout_s=30) as client, ThreadPoolExecutor(1) as threads:
        game = client.open()
        turn = game.turn("Mia waves.")
        assert [next(turn).seq for _ in range(3)] == [0, 1, 2]
        status = threads.submit(client.status)
        while "status" not in server.kinds():
            time.sleep(0.01)
        assert game.cancel() and not status.done()
        with pytest.raises(ServerRefused, match="cancelled"):
            next(turn)
        client.close()
        with pytest.raises(ClientError, match="the client is closed"):
            status.result()


def test_turn_that_two_threads_read_is_refused_to_one_and_goes_on_for_the_other(server: FakeServer) -> None:
    server.faults[3] = "hold"
    with Client(server.address, timeout_s=10) as client, ThreadPoolExecutor(2) as threads:
        game = client.open(seed=3)
        turn = game.turn("Mia waves.")
        assert [next(turn).seq for _ in range(3)] == [0, 1, 2]
        done, reading = wait([threads.submit(next, turn) for _ in range(2)], return_when=FIRST_COMPLETED)
        with pytest.raises(ClientError, match="another thread or task is reading this turn's events"):
            done.pop().result()
        assert game.cancel()
        with pytest.raises(ServerRefused, match="cancelled"):
            reading.pop().result()


def test_client_that_is_closed_while_another_thread_reads_tells_it_so(server: FakeServer) -> None:
    server.faults[3] = "hold"
    client = Client(server.address, timeout_s=10)
    turn = client.open().turn("Mia waves.")
    assert [next(turn).seq for _ in range(3)] == [0, 1, 2]
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(next, turn)
        time.sleep(0.05)
        client.close()
        with pytest.raises(ClientError, match="the client is closed"):
            reading.result()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on, where other threads run
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_is_told_to_make_its_own_client_and_leaves_the_game_of_its_parent(server: FakeServer) -> None:
    server.faults[3] = "hold"
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        turn = game.turn("Mia waves.")
        assert next(turn).seq == 0
        child = os.fork()
        if child == 0:
            told = 0
            for call in (client.status, game.log, lambda: next(turn), lambda: game.turn("Mia runs.")):
                try:
                    call()
                except ClientError as error:
                    told += "before a fork" in error.text
            turn.close()
            client.close()
            os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        assert next(turn).seq == 1 and "cancel" not in server.kinds()
