"""`search-plans --judge` with a file that is none: one line in our words, without advice to switch a protection off."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from animegamer_rt.cli import main


class Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("code of the file",)


@pytest.mark.parametrize("content", [b"a few words\n", b"", pickle.dumps(Runs()), b"PK\x03\x04" + bytes(100)])
def test_a_file_that_is_no_judge_is_refused_in_our_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "one.txt").write_bytes(content)
    options = ["--dry-run", "--results", str(tmp_path / "results"), "--judge", str(tmp_path / "one.txt")]
    assert main(["search-plans", "pocket", *options]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ") and "not a judge of pocket" in said.err and said.err.count("\n") == 1
    assert "weights_only" not in said.err and "code of the file" not in said.out
