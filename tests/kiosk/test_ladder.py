"""When the watch restarts what, and when it leaves everything alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from animegamer_kiosk.ladder import Action, Ladder, Picture, Seen

MOVES, FROZEN, BLACK, GONE = (Seen(picture) for picture in Picture)
NIGHT, UNPLUGGED = Seen(Picture.GONE, wanted=False), Seen(Picture.BLACK, monitor=False)
BROWSER, GATEWAY, SERVER = "browser", "gateway", "server"


def _restarts(seen: Iterable[tuple[int, Seen]]) -> list[tuple[int, str]]:
    """What a ladder of 10 s does: (second, last word of the action), without nothings. seen: seconds, observation."""
    ladder, now, done = Ladder(10), 0, []
    for seconds, one in seen:
        for _ in range(seconds):
            action = ladder.next(one, float(now))
            if action is not Action.NOTHING:
                done.append((now, action.value.split()[-1]))
            now += 1
    return done


@pytest.mark.parametrize(
    ("what", "seen", "expected"),
    [
        ("all is well", [(500, MOVES)], []),
        ("a still shorter than a clip", [(9, MOVES), (9, FROZEN), (9, MOVES), (9, FROZEN), (9, MOVES)], []),
        ("frozen", [(5, MOVES), (12, FROZEN), (50, MOVES)], [(15, BROWSER)]),
        ("black", [(5, MOVES), (12, BLACK), (50, MOVES)], [(15, BROWSER)]),
        ("the browser is killed and systemd starts it", [(5, MOVES), (6, GONE), (50, MOVES)], []),
        ("the browser does not come back", [(5, MOVES), (15, GONE)], [(15, BROWSER)]),
        ("the gateway hangs", [(5, MOVES), (32, FROZEN), (50, MOVES)], [(15, BROWSER), (35, GATEWAY)]),
        ("the server hangs", [(5, MOVES), (60, FROZEN)], [(15, BROWSER), (35, GATEWAY), (55, SERVER)]),
        (
            "nothing helps: it goes on, more and more slowly",
            [(500, BLACK)],
            [(11, BROWSER), (31, GATEWAY), (51, SERVER), (91, BROWSER), (131, GATEWAY), (171, SERVER), (251, BROWSER)]
            + [(331, GATEWAY), (411, SERVER)],
        ),
        (
            "trouble an hour later begins with the browser again",
            [(12, FROZEN), (60, MOVES), (15, FROZEN)],
            [(11, BROWSER), (82, BROWSER)],
        ),
        ("no monitor", [(5, MOVES), (5000, UNPLUGGED), (5, MOVES)], []),
        ("a monitor comes back to a frozen picture", [(50, UNPLUGGED), (15, FROZEN)], [(60, BROWSER)]),
        ("night", [(5, MOVES), (5000, NIGHT), (50, MOVES)], [(5, "off"), (5005, "on")]),
        (
            "morning with a black screen",
            [(5, MOVES), (50, NIGHT), (15, BLACK)],
            [(5, "off"), (55, "on"), (66, BROWSER)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_restarted(what: str, seen: list[tuple[int, Seen]], expected: list[tuple[int, str]]) -> None:
    assert _restarts(seen)[1:] == expected
    assert _restarts(seen)[0] == (0, "on")
