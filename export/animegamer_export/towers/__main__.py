"""`python -m animegamer_export.towers BUNDLE --t5 DIR --clip DIR`: adds the full-size towers to an exported bundle."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from animegamer_export.towers.bundle import add_towers
from animegamer_rt.errors import AnimeGamerError


def main() -> int:
    """0 when the towers are in the bundle, 2 with one line on stderr for what the user can mend."""
    parser = argparse.ArgumentParser("animegamer_export.towers", description=__doc__)
    parser.add_argument("bundle", type=Path, help="the bundle's folder; its encoder must be there")
    parser.add_argument("--t5", type=Path, required=True, metavar="DIR", help="google/t5-v1_1-xxl from transformers")
    parser.add_argument("--clip", type=Path, required=True, metavar="DIR", help="the ViT-B-16 folder of open_clip")
    parser.add_argument("--text-precision", default="fp16", help="fp32, fp16, bf16, int8, ... (default: fp16)")
    parser.add_argument("--image-precision", default="fp16", help="fp32, fp16 or bf16 (default: fp16)")
    options = parser.parse_args()
    try:
        bundle = add_towers(options.bundle, options.t5, options.clip, options.text_precision, options.image_precision)
    except AnimeGamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{bundle.folder}: text_tower and image_tower added")
    return 0


if __name__ == "__main__":
    sys.exit(main())
