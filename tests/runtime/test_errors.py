"""One tree of errors, each of which says what, where, found, expected and what to do."""

from __future__ import annotations

import inspect

from animegamer_rt import errors
from animegamer_rt.errors import AnimeGamerError


def test_every_error_is_in_the_tree_drawn_and_has_a_code_of_its_own() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert all(issubclass(kind, AnimeGamerError) for kind in kinds)
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in kinds)
