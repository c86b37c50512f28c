"""The animated picture of README: plays the development set's first sentences and draws clips, text and state as a GIF.

`make picture` runs it. The frames are the pipeline's own; only the strip below them is added.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.events import FrameReady, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import VALUES, CharacterState, Instruction
from animegamer_rt.video import Frames

DOCS = Path(__file__).resolve().parent
SENTENCES = DOCS.parent / "benchmarks/language/development.jsonl"
SCALE, STRIP, MARGIN = 3, 74, 10
BARS = dict(zip(VALUES, ("#e15759", "#b07aa1", "#edc948"), strict=True))
COLOURS = 96


def draw(frame: Frames, text: str, state: CharacterState) -> Image.Image:
    """One frame, enlarged, over a strip with the instruction and the character's values."""
    height, width, _ = frame.shape
    picture = Image.new("RGB", (width * SCALE, height * SCALE + STRIP), "#1f2430")
    picture.paste(Image.fromarray(frame).resize((width * SCALE, height * SCALE), Image.Resampling.BICUBIC))
    pen = ImageDraw.Draw(picture)
    words, small = ImageFont.load_default(15), ImageFont.load_default(11)
    for row, line in enumerate(textwrap.wrap(text, 56)[:2]):
        pen.text((MARGIN, height * SCALE + 7 + 19 * row), line, fill="#f2f2f2", font=words)
    each = (width * SCALE - 2 * MARGIN) // len(BARS)
    for column, (name, colour) in enumerate(BARS.items()):
        x, y, full = MARGIN + column * each, height * SCALE + 52, each - 20
        pen.rectangle((x, y + 13, x + full, y + 17), fill="#3a4150")
        pen.rectangle((x, y + 13, x + full * getattr(state, name) // 100, y + 17), fill=colour)
        pen.text((x, y - 2), f"{name} {getattr(state, name)}", fill="#c8ccd4", font=small)
    return picture


def main() -> None:
    """Play the story and write the GIF."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", default="pocket")
    parser.add_argument("--plan")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--out", type=Path, default=DOCS / "game.gif")
    options = parser.parse_args()
    bundle = open_bundle(options.bundle)
    pipeline = Pipeline.open(bundle, open_engines(bundle, EngineConfig("cpu-fp32")), plan=options.plan)
    pictures = []
    for line in map(json.loads, SENTENCES.read_text("utf-8").splitlines()[: options.turns]):
        if line["turn"] == 1:
            session = Session.start(bundle, seed=options.seed)
        for event in pipeline.run_turn(session, Instruction.parse(line["say"])):
            if isinstance(event, StatePredicted):
                state = event.shown
            elif isinstance(event, FrameReady):
                pictures.append(draw(event.frame, line["say"], state))
    palette = [picture.quantize(COLOURS, dither=Image.Dither.NONE) for picture in pictures]
    duration = 1000 // bundle.manifest.geometry.fps
    palette[0].save(options.out, save_all=True, append_images=palette[1:], duration=duration, loop=0, optimize=True)
    print(f"{options.out}: {len(pictures)} frames, {options.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
