"""`mllm-output.pt`, the file between the published code's two scripts: written, read, played and compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from animegamer_export.shots.file import read_turns
from animegamer_rt.cli import main
from animegamer_rt.errors import CheckpointError

SHAPE = (226, 192)


def published(count: int = 2) -> dict[str, Any]:
    """What inference_MLLM.py saves: {"turn_1": [shot, instruction, [ML, SC, ET, ST]], ..}, at pocket's width."""
    generator = torch.Generator().manual_seed(3)
    return {
        f"turn_{number + 1}": [
            torch.randn((1, *SHAPE), generator=generator).bfloat16(),
            "Character: Tofi; Motion: gently wave; Background: day meadow.",
            [number + 1, 0, -2, 0],
        ]
        for number in range(count)
    }


def test_shots_are_written_as_the_published_script_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, path = tmp_path / "demo.txt", tmp_path / "mllm-output.pt"
    script.write_text(
        "Tofi waves in the meadow.\n\nCharacter: Bixo; Motion: run; Background: city.\n", encoding="utf-8"
    )
    for _ in range(2):  # its own file is replaced
        assert main(["shots", "write", str(path), "--bundle", "pocket", "--instructions", str(script)]) == 0
    written, expected = torch.load(path, weights_only=True), published()
    assert list(written) == list(expected)
    for name, (shot, text, strengths) in written.items():
        assert (shot.shape, shot.dtype, shot.device) == ((1, *SHAPE), torch.bfloat16, torch.device("cpu"))
        assert text.startswith("Character: ") and [type(one) for one in strengths] == [int] * 4, name
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".txt"] == ["mllm-output.pt"]

    capsys.readouterr()
    assert main(["shots", "compare", str(path), "--bundle", "pocket"]) == 0
    for line in capsys.readouterr().out.splitlines():
        error = float(line.split("relative error of the shot ")[1].split(";")[0])
        assert 0 < error < 2**-8  # bfloat16's rounding
        assert "strengths equal" in line
    assert main(["shots", "compare", str(path), "--bundle", "pocket", "--as-played"]) == 0
    later = capsys.readouterr().out.splitlines()[1]
    assert float(later.split("relative error of the shot ")[1].split(";")[0]) > 2**-8  # it sees the first turn


def test_shots_of_the_published_script_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    av = pytest.importorskip("av")
    path, out = tmp_path / "mllm-output.pt", tmp_path / "clips"
    turns = published(3)
    torch.save({name: turns[name] for name in ("turn_3", "turn_2")}, path)  # the first is cut off, the order lost
    command = ["shots", "decode", str(path), "--bundle", "pocket", "--plan", "fast", "--out", str(out)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "002.mp4: motion scope 2.5" in shown and "003.mp4: motion scope" in shown  # of level 2 in the decoder script
    for name in ("turn-002.mp4", "turn-003.mp4"):
        with av.open(str(out / name)) as clip:
            assert len(list(clip.decode(video=0))) == 17


def test_a_number_that_is_no_strength_is_read_as_the_published_decoder_does(tmp_path: Path) -> None:
    """`<frame_00123>` in place of a strength is read as 23 there, and gets the scope of other levels."""
    turns = published(1)
    turns["turn_1"][2] = [23, 0, 0, 0]
    torch.save(turns, tmp_path / "x.pt")
    (turn,) = read_turns(tmp_path / "x.pt", SHAPE).values()
    assert (turn.strengths, turn.motion_scope) == ((23, 0, 0, 0), 40.0)


def test_files_of_others_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, path, clips = tmp_path / "demo.txt", tmp_path / "mllm-output.pt", tmp_path / "clips"
    script.write_text("Tofi waves in the meadow.\n", encoding="utf-8")
    assert main(["shots", "write", str(script), "--bundle", "pocket", "--instructions", str(script)]) == 2
    assert "demo.txt: this file is not an mllm-output.pt" in capsys.readouterr().err
    assert script.read_text(encoding="utf-8") == "Tofi waves in the meadow.\n"
    torch.save(published(1), path)
    clips.mkdir()
    (clips / "turn-001.mp4").write_text("mine")
    assert main(["shots", "decode", str(path), "--bundle", "pocket", "--plan", "fast", "--out", str(clips)]) == 2
    assert "found turn-001.mp4" in capsys.readouterr().err
    assert (clips / "turn-001.mp4").read_text() == "mine"


def test_texts_of_a_file_are_printed_without_their_controls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns, path = published(1), tmp_path / "x.pt"
    turns["turn_1"][:2] = [torch.zeros(1, *SHAPE).bfloat16(), "Tofi\x1b[2J waves."]
    torch.save(turns, path)
    assert main(["shots", "compare", str(path), "--bundle", "pocket"]) == 0
    assert capsys.readouterr().out.endswith("; Tofi\\x1b[2J waves.\n")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pwned",)


REFUSED: dict[str, tuple[Any, str]] = {
    "code": ({"turn_1": [Evil(), "x", [1, 0, 0, 0]]}, "would run code"),
    "weights": ({"a.weight": torch.zeros(2)}, r"not a turn of inference_MLLM.py\n(?s:.*)a\.weight"),
    "three strengths": ({"turn_1": [torch.zeros(1, *SHAPE), "x", [1, 0, 0]]}, "not a turn"),
    "strengths in a tensor": ({"turn_1": [torch.zeros(1, *SHAPE), "x", torch.zeros(4)]}, "not a turn"),
    "one turn twice": ({**published(1), "turn_01": published(1)["turn_1"]}, r"not a turn(?s:.*)turn_01"),
    "a turn of 5000 digits": ({"turn_" + "9" * 5000: published(1)["turn_1"]}, "not a turn"),
    "another width": ({"turn_1": [torch.zeros(1, 226, 1920), "x", [1, 0, 0, 0]]}, "shots of another model"),
    "numbers that are not finite": (
        {"turn_1": [torch.full((1, *SHAPE), torch.nan), "x", [1, 0, 0, 0]]},
        "the shot of turn_1 is not finite",
    ),
    "nothing": ({}, "no turns"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_another_file_is_refused_and_runs_nothing(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content, words = REFUSED[what]
    torch.save(content, "x.pt")
    with pytest.raises(CheckpointError, match=words):
        read_turns(Path("x.pt"), SHAPE)
    assert not Path("pwned").exists()
