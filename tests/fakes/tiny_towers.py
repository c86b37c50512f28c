"""The tiny bundle's encoder parts: two towers and an encoder, a few operators each, in ONNX's text form."""

from __future__ import annotations

from dataclasses import replace

import onnx
import onnx.parser

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Part
from animegamer_rt.bundle.writer import write_manifest

_HEADER = '<ir_version: 9, opset_import: ["": 20]>'
TOWERS = {
    # Every feature is the id itself.
    "text_tower": f"""{_HEADER}
text_tower (int64[1, 30] ids) => (float[1, 30, 4] text_features)
<int64[3] column = {{1, 30, 1}}, int64[3] wide = {{1, 30, 4}}>
{{
    numbers = Cast<to = 1>(ids)
    upright = Reshape(numbers, column)
    text_features = Expand(upright, wide)
}}""",
    # Every feature is the picture's mean.
    "image_tower": f"""{_HEADER}
image_tower (float[1, 3, 16, 24] picture) => (float[1, 196, 5] image_features)
<int64[3] wide = {{1, 196, 5}}, int64[3] one = {{1, 1, 1}}>
{{
    mean = ReduceMean<keepdims = 0>(picture)
    single = Reshape(mean, one)
    image_features = Expand(single, wide)
}}""",
    # 30 rows of the ids, divided by 1000, then 196 rows of the picture's mean.
    "encoder": f"""{_HEADER}
encoder (float[1, 30, 4] text_features, float[1, 196, 5] image_features) => (float[1, 226, 8] shot)
<float[1] small = {{0.001}}, int64[1] start = {{0}}, int64[1] three = {{3}}, int64[1] last = {{2}}>
{{
    scaled = Mul(text_features, small)
    text_shot = Concat<axis = 2>(scaled, scaled)
    some = Slice(image_features, start, three, last)
    image_shot = Concat<axis = 2>(image_features, some)
    shot = Concat<axis = 1>(text_shot, image_shot)
}}""",
}


INPUTS = {
    "text_tower": {"ids": {"dtype": "int64", "shape": [1, 30]}},
    "image_tower": {"picture": {"dtype": "float32", "shape": [1, 3, 16, 24]}},
    "encoder": {
        "text_features": {"dtype": "float32", "shape": [1, 30, 4]},
        "image_features": {"dtype": "float32", "shape": [1, 196, 5]},
    },
}


def add_towers(bundle: Bundle) -> Bundle:
    """The same bundle, able to start from a picture of 16 x 24."""
    for part, text in TOWERS.items():
        model = onnx.parser.parse_model(text)
        onnx.checker.check_model(model)
        onnx.save(model, bundle.folder / f"{part}.onnx")
    parts = dict(bundle.manifest.parts) | {part: Part(f"{part}.onnx", "fp32", inputs=INPUTS[part]) for part in TOWERS}
    return write_manifest(bundle.folder, replace(bundle.manifest, parts=parts))
