"""The page's pictures, drawn by the bundle: the clip of the empty table, and a small square of a clip for each word.

`make picture` runs it. Run it again after the bundle was trained anew: the pictures and their order go to client/web.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import animegamer_rt

WEB = Path(__file__).resolve().parents[1] / "client" / "web"
ATTRACT = "Tofi waves smoothly in the meadow by day."
SIDE, FACE, BODY, PLACE = 48, 50, 84, 54
"""Sides, in pixels: of each picture, and of what is cut out of a clip of pocket, 144 x 96."""
DIFFERS = 60
"""Difference of a pixel, summed over its colours, from which it belongs to the person and not to the place."""


def cut(frame: npt.NDArray[np.uint8], x: int, y: int, side: int) -> Image.Image:
    """The square round (x, y), moved into the frame."""
    height, width, _ = frame.shape
    left, top = min(max(0, x - side // 2), width - side), min(max(0, y - side // 2), height - side)
    square = Image.fromarray(frame[top : top + side, left : left + side])
    return square.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def main() -> None:
    """Draw each word and write words.jpg and pictured.js."""
    with animegamer_rt.open("pocket", plan="balanced") as player:
        reader = player.bundle.manifest.reader
        assert reader is not None

        def draw(said: str) -> npt.NDArray[np.uint8]:
            return player.start(seed=1).turn(said).frames

        Image.fromarray(np.concatenate(draw(ATTRACT))).save(WEB / "attract.jpg", quality=78, subsampling=0)
        people = {name: draw(f"{name} waves barely in the snowfield by day.")[0] for name in reader.people}
        motions = {
            word: draw(f"{reader.people[0]} {word} smoothly in the snowfield by day.")[8] for word in reader.motions
        }
        places = {word: draw(f"{reader.people[-1]} waves barely in the {word} by day.")[0] for word in reader.places}
        hours = {
            hour: draw(f"{reader.people[-1]} waves barely in the meadow at {hour}.")[0] for hour in ("day", "night")
        }
    empty = np.median(np.stack([*people.values(), *motions.values()]), axis=0)
    pictures = []
    for drawn, side in ((people, FACE), (motions, BODY)):
        for frame in drawn.values():
            rows, columns = np.nonzero(np.abs(frame - empty).sum(axis=2) > DIFFERS)
            top = int(np.percentile(rows, 2))
            y = top + FACE // 2 - 2 if side == FACE else int(rows.mean())
            pictures.append(cut(frame, int(np.median(columns)), y, side))
    for frame in [*places.values(), *hours.values()]:
        pictures.append(cut(frame, frame.shape[1], 35, PLACE))
    strip = Image.new("RGB", (SIDE * len(pictures), SIDE))
    for place, picture in enumerate(pictures):
        strip.paste(picture, (SIDE * place, 0))
    strip.save(WEB / "words.jpg", quality=86)
    names = json.dumps([*people, *motions, *places, *hours])
    text = f"// The words of pocket, as in words.jpg. By docs/page_pictures.py.\nexport const PICTURED = {names};\n"
    (WEB / "pictured.js").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
