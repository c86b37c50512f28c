"""A tiny instruction reader for the tiny bundle: it knows a few words, keeps what they leave out, and nothing else.

An output's logit is raised by the words that ask for it, and a little by what the scene shows already. The part has the
inputs and outputs of a trained one.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from animegamer_rt.backends.interface import NOTES
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Part, ReaderWords
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.language.words import GRAMS, word_features

WORDS = ReaderWords(
    people=("Mia", "Tobo"),
    clothes=("everyday", "raincoat", "party"),
    clothes_words=("everyday clothes", "a raincoat", "party clothes"),
    motions=("wave", "run", "fly on a kite"),
    manners=("barely", "gently", "smoothly", "quickly", "wildly"),
    places=("town", "forest"),
    positions=("left", "centre", "right"),
    position_words=("on the left", "in the middle", "on the right"),
    language="language.json",
)
LANGUAGE = {
    **json.loads(
        (Path(__file__).parents[2] / "export/animegamer_pocket/reader/language.json").read_text(encoding="utf-8")
    ),
    "said": {
        "wave": "waves",
        "run": "runs",
        "fly on a kite": "flies on a kite",
        "town": "in the town",
        "forest": "in the forest",
        "day": "",
        "night": " at night",
    },
}
"""The shipped English phrases, and how this world's words are said."""
UNKNOWN = ("explodes", "dragon", "swims")
"""The words that it says it cannot draw; it passes over all others that it does not know."""

# What each word asks for: output, index.
_ASKS: dict[str, tuple[str, int | tuple[list[int], list[int]]]] = {
    "mia": ("people", ([0], [1])),
    "tobo": ("people", ([1], [1])),
    "both": ("people", ([0, 1], [1, 2])),
    "raincoat": ("clothes", 1),
    "party": ("clothes", 2),
    "waves": ("motion", 0),
    "runs": ("motion", 1),
    "flies": ("motion", 2),
    "gently": ("level", 1),
    "wildly": ("level", 4),
    "town": ("place", 0),
    "forest": ("place", 1),
    "day": ("night", 0),
    "night": ("night", 1),
    "right": ("position", 2),
    "hello": ("notes", NOTES.index("nothing")),
    "again": ("notes", NOTES.index("goes_on")),
    "undo": ("notes", NOTES.index("undo")),
    "hundreds": ("notes", NOTES.index("crowd")),
    "then": ("notes", NOTES.index("second_motion")),
    "swims": ("notes", NOTES.index("substitute")),
}
_SHAPES = {"people": (2, 3), "clothes": (2, 3), "motion": (3,), "level": (5,), "place": (2,), "night": (2,)}
_SHAPES |= {"position": (3,), "refused": (2,), "notes": (len(NOTES),)}
GAME = (
    "Mia waves gently in the town.",
    "A raincoat, it is night",
    "Tobo runs wildly",
    "Mia flies",
    "both, on the right",
)
CAPTIONS = (
    "Character: Mia in everyday clothes on the left; Motion: gently wave; Background: day town.",
    "Character: Mia in a raincoat on the left; Motion: gently wave; Background: night town.",
    "Character: Tobo in everyday clothes on the left; Motion: wildly run; Background: night town.",
    "Character: Mia in a raincoat on the left; Motion: wildly fly on a kite; Background: night town.",
    "Character: Mia in a raincoat and Tobo in everyday clothes on the right; "
    "Motion: wildly fly on a kite; Background: night town.",
)
"""A game in everyday words, and how it is understood."""

SCENE_NUMBERS = 3 * len(WORDS.people) + 10
_DEPTH = 16
"""More than any number of the input `scene`."""


def add_reader(bundle: Bundle, words: ReaderWords = WORDS) -> Bundle:
    """The bundle with the tiny reader as a part."""
    onnx.save(reader_model(), bundle.folder / "reader.onnx")
    if words.language:
        (bundle.folder / words.language).write_text(json.dumps(LANGUAGE), encoding="utf-8")
    parts = {**bundle.manifest.parts, "reader": Part("reader.onnx", "fp32")}
    return write_manifest(bundle.folder, replace(bundle.manifest, parts=parts, reader=words))


def reader_model() -> onnx.ModelProto:
    """The network: features of words and the scene before -> logits."""
    numbers = word_features([*_ASKS, *UNKNOWN])[:, 0]  # a word's first piece is the word itself
    constants: dict[str, npt.NDArray[np.generic]] = {
        "words": numbers[: len(_ASKS)].reshape(1, 1, -1),
        "strange": numbers[len(_ASKS) :].reshape(1, 1, -1),
        "first": np.array(0),
        "depth": np.array(_DEPTH),
        "off_on": np.array([0, 1], np.float32),
        "axis_1": np.array([1]),
        "axis_2": np.array([2]),
        "flat": np.array([1, -1]),
        "half": np.array(0.5, np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["features", "first"], ["heads"], axis=2),
        helper.make_node("Unsqueeze", ["heads", "axis_2"], ["column"]),
        helper.make_node("Equal", ["column", "words"], ["same"]),
        helper.make_node("Cast", ["same"], ["hits"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["hits", "axis_1"], ["asked"], keepdims=0),
        helper.make_node("OneHot", ["scene", "depth", "off_on"], ["shown"]),
        helper.make_node("Reshape", ["shown", "flat"], ["shown_flat"]),
        helper.make_node("Concat", ["asked", "shown_flat"], ["seen"], axis=1),
        helper.make_node("Equal", ["column", "strange"], ["is_strange"]),
        helper.make_node("Cast", ["is_strange"], ["strange_hits"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["strange_hits", "axis_2"], ["any_strange"], keepdims=0),
        helper.make_node("Sub", ["any_strange", "half"], ["unknown"]),
    ]
    for output, shape in _SHAPES.items():
        constants |= {f"{output}_weight": _weight(output), f"{output}_shape": np.array([1, *shape])}
        nodes += [
            helper.make_node("MatMul", ["seen", f"{output}_weight"], [f"{output}_flat"]),
            helper.make_node("Reshape", [f"{output}_flat", f"{output}_shape"], [output]),
        ]
    inputs = [
        helper.make_tensor_value_info("features", TensorProto.INT64, [1, "words", GRAMS]),
        helper.make_tensor_value_info("scene", TensorProto.INT64, [1, SCENE_NUMBERS]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *shape])
        for name, shape in {**_SHAPES, "unknown": ("words",)}.items()
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "reader", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def _weight(output: str) -> npt.NDArray[np.float32]:
    """[asked words + scene, logits]: 12 for a word that asks, 3 for what is shown, which a named person takes away.

    Before a first scene, the first motion, level, place and hour count as shown.
    """
    shape, kinds = _SHAPES[output], len(WORDS.clothes)
    asked = np.zeros((len(_ASKS), *shape), np.float32)
    shown = np.zeros((SCENE_NUMBERS, _DEPTH, *shape), np.float32)
    for row, (asks, index) in enumerate(_ASKS.values()):
        if asks != output:
            continue
        if output == "people":  # whoever is not named leaves
            asked[row, :, 0] = 2
            asked[(row, *index)] = 4
        else:
            asked[row, ..., index] = 4
    for number in range(_DEPTH):
        for person in range(len(WORDS.people)):
            presence, clothes = divmod(number, kinds)
            if output == "people" and presence < 3:
                shown[person, number, person, presence] = 1
            elif output == "clothes":
                shown[person, number, person, clothes] = 1
        for row, name in enumerate(("motion", "level", "place", "night", "position"), len(WORDS.people)):
            if name == output and number <= shape[0]:
                shown[row, number, number % shape[0]] = 1
    return 3 * np.concatenate([asked, shown.reshape(-1, *shape)]).reshape(-1, int(np.prod(shape)))
