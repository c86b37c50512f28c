"""README is true: its code runs, its commands exist, its links lead somewhere, its table is the measured one."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from live_server import LiveServer
from project import ROOT, project_files

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(path for path in project_files() if path.suffix == ".md")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line.partition("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_python_code_runs_as_it_stands(tmp_path: Path) -> None:
    _, code = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(17, 96, 144, 3) uint8 GameState(")
    assert done.stdout.count("FrameReady") == 17 and (tmp_path / "turn.mp4").stat().st_size > 1000


def test_client_code_runs_against_the_server(tmp_path: Path) -> None:
    code, _ = blocks("python")
    with LiveServer(ROOT / "engines" / "pocket", tmp_path / "state", device="cpu") as server:
        code = code.replace(":5570", f":{server.ready().port}")
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(96, 144, 3)") == 17


def test_game_command_plays_the_story(tmp_path: Path) -> None:
    (command,) = [line for line in commands() if line.startswith("animegamer-rt play ")]
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    words = shlex.split(command)[1:]
    done = subprocess.run([sys.executable, "-m", "animegamer_rt", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    game = json.loads((tmp_path / words[-1] / "game.json").read_text(encoding="utf-8"))
    lines = (ROOT / "docs" / "story.txt").read_text(encoding="utf-8").splitlines()
    assert [turn["instruction"] for turn in game["turns"]] == [line for line in lines if not line.startswith("#")]


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
    assert {"play", "test"} <= named
    assert named <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_the_pythons_named_are_those_that_make_takes() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    first, beyond = re.findall(r"\(3, (\d+)\)", makefile)
    named = f"Python 3.{first} to 3.{int(beyond) - 1}"
    assert named in makefile and named in README
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"^        python: (.*)$", workflow, re.MULTILINE)
    assert json.loads(matrix) == [f"3.{minor}" for minor in range(int(first), int(beyond))]


def headings(page: Path) -> set[str]:
    """As the anchors of a page are called."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_links_to_files_and_headings_lead_somewhere() -> None:
    for page in PAGES:
        for file, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text(encoding="utf-8")):
            target = page.parent / file if file else page
            assert target.exists() and (not anchor or anchor in headings(target)), f"{page}: {file}#{anchor}"
