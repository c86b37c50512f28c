"""One tree of errors, each of which says what, where, found, expected and what to do."""

from __future__ import annotations

import inspect

from animegamer_rt import errors
from animegamer_rt.errors import AnimeGamerError, CheckpointError


def test_message_says_what_where_found_expected_and_what_to_do() -> None:
    error = AnimeGamerError("cut short", where="a.onnx", found="3 bytes", expected="9 bytes", do="copy it again")
    assert str(error) == "a.onnx: cut short; found 3 bytes; expected 9 bytes; copy it again"
    assert (error.what, error.do) == ("cut short", "copy it again")
    assert error.text == "a.onnx: cut short; found 3 bytes; expected 9 bytes"


def test_every_error_is_in_the_tree_drawn_and_has_a_code_of_its_own() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert all(issubclass(kind, AnimeGamerError) for kind in kinds)
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in kinds)


def test_long_lists_are_cut_in_the_text_and_whole_in_the_attributes() -> None:
    error = CheckpointError("not a denoiser", missing=[f"key.{n}" for n in range(100)])
    assert "missing (100)" in str(error) and "and 60 more" in str(error)
    assert len(error.missing) == 100
