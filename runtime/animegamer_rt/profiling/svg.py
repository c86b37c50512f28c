"""An SVG picture without a plotting library, and the colour of each stage of a turn."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

COLOURS = {"predictor": "#4e79a7", "denoiser": "#f28e2b", "vae": "#59a14f"}


def svg(width: int, height: float, title: str, parts: Iterable[str]) -> str:
    """An SVG document of these elements on white; sizes in pixels. The title takes the first 30 rows of pixels."""
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height:.0f}" fill="white"/>',
        f'<text x="12" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
    )
    return "\n".join([*opening, *parts, "</svg>"]) + "\n"
