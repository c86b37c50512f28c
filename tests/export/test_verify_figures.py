"""Which figures of a verification are too far from the reference."""

from __future__ import annotations

import math

import pytest

from animegamer_export.verify.figures import exceeds_tolerance


@pytest.mark.parametrize(("error", "too_far"), [(0.1, False), (0.11, True), (math.inf, True), (math.nan, True)])
def test_an_error_above_the_tolerance_is_named_and_so_is_one_that_is_no_number(error: float, too_far: bool) -> None:
    figures = {"denoiser": {"precision": "int8-dynamic", "x0_relative_error": error}}
    found = exceeds_tolerance(figures, {"int8-dynamic": 0.1})
    assert found == ([f"denoiser: x0 relative error {error}, allowed 0.1"] if too_far else [])
