"""The page's own code, without a browser: a day of the kiosk's attract loop, in node, on a clock of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from animegamer_kiosk import browser
from client import driver_stories as stories

ROOT = Path(__file__).parents[2]
HOURS, PICTURES_AN_HOUR = 24, 20_000


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A copy of the page that node can run."""
    page = shutil.copytree(ROOT / "client/web", tmp_path / "web")
    (page / "package.json").write_text('{"type": "module"}')  # Debian 12's node 18 asks for it
    return page


def test_clips_are_shown_as_in_every_client(page: Path) -> None:
    stories.check_display(["node", str(ROOT / "tests/client/web/display.mjs"), str(page)])


def test_a_day_of_the_kiosk_page_leaves_nothing_behind_and_an_empty_page_is_never_idle(page: Path) -> None:
    scripts = {"state": browser._STATE, "end": browser._END_GAME}
    # On a busy machine, node's compiler threads shifted up to 0.25 MB from one sample to the other.
    command = ["node", "--expose-gc", "--single-threaded", ROOT / "tests/client/web/day.mjs", page]
    ended = subprocess.run(command, input=json.dumps(scripts), capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    day: dict[str, Any] = json.loads(ended.stdout)
    assert day["drawn"] > HOURS * PICTURES_AN_HOUR and day["pings"] >= HOURS * 3600 // 40
    for hour in day["hours"]:
        assert hour["touched"] == 0, "a page that nobody has touched is not to be emptied, again and again"
        assert hour["said"] and hour["turns"] == 1 and 20 <= hour["idle"] <= 30, hour
        assert hour["ready"] == ["Tofi waves. Again."], (
            "what is ready for another strip is not shown, and hides nothing"
        )
        assert hour["wished"] == ["Zelki jumps."], "what somebody is about to ask for is drawn meanwhile"
        assert hour["after"] == 0
    early, late = day["samples"]
    assert late["heap"] - early["heap"] < 300_000, day["samples"]
    assert {**late, "heap": 0} == {**early, "heap": 0}, "no element, timer or listener stays"
