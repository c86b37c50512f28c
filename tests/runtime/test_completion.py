"""Tab in bash offers subcommands, options, files, and the bundles and plans of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fakes
from animegamer_rt.cli import main

PRESS_TAB = """
animegamer-rt() {{ "{python}" -m animegamer_rt "$@"; }}
source "{script}"
COMP_WORDS=({words} "{begun}")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_animegamer_rt
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bash") / "animegamer-rt"
    command = [sys.executable, "-m", "animegamer_rt", "completion", "bash"]
    path.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return path


@pytest.mark.parametrize(
    ("words", "begun", "offered"),
    [
        ("", "pl", {"play"}),
        ("", "ver", {"verify"}),
        ("play", "--hist", {"--history-turns"}),
        ("play --bundle", "ti", {"tiny"}),
        ("serve --plan", "ex", {"exact"}),
        ("quantize", "ti", {"tiny"}),
        ("quantize", "--cal", {"--calibration-turns"}),
        ("bench", "sh", {"show"}),
        ("bench show", "--fo", {"--format"}),
        ("info", "", {"pocket", "tiny"}),
    ],
)
def test_tab_offers_what_may_follow(
    script: Path, words: str, begun: str, offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.write_bundle(tmp_path / "bundles" / "tiny")
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(tmp_path / "bundles"))
    typed = PRESS_TAB.format(python=sys.executable, script=script, words=f"animegamer-rt {words}", begun=begun)
    done = subprocess.run(["bash", "-c", typed], check=True, text=True, capture_output=True, cwd=tmp_path)
    assert set(done.stdout.split()) >= offered if not begun else set(done.stdout.split()) == offered, done.stderr


def test_zsh_gets_a_script_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef animegamer-rt")


def test_without_shtab_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "shtab is not installed" in (said := capsys.readouterr().err) and "pip install shtab" in said
