"""Runs a bundle's instruction reader and picture reader with onnxruntime: on the CPU, in one thread, on every device.

A sentence takes a few milliseconds, so no other device would be faster. Knows the parts' tensors; nothing of words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnxruntime

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.bundle.roles import PICTURE_READER, READER
from animegamer_rt.errors import BackendError
from animegamer_rt.state.scene import HOURS, LEVELS

from .interface import FloatArray, IntArray, PictureReaderEngine, ReaderEngine, ReaderLogits

INPUTS = ("features", "scene")
PICTURE_INPUTS = ("picture",)
OUTPUTS = tuple(field.name for field in fields(ReaderLogits))
PICTURE_OUTPUTS = OUTPUTS[:-1]
"""All but `unknown`."""


def load_reader(bundle: Bundle) -> ReaderEngine:
    """The instruction reader of a bundle that has one.

    Raises BackendError when it cannot be loaded, or when its outputs are not those of the manifest's words.
    """
    return _Reader(_open(bundle, READER, INPUTS, OUTPUTS))


def load_picture_reader(bundle: Bundle) -> PictureReaderEngine:
    """The picture reader of a bundle that has one. Raises BackendError as `load_reader`."""
    return _PictureReader(_open(bundle, PICTURE_READER, PICTURE_INPUTS, PICTURE_OUTPUTS))


def _open(bundle: Bundle, part: str, inputs: Sequence[str], outputs: Sequence[str]) -> onnxruntime.InferenceSession:
    path, words = bundle.part_path(part), bundle.manifest.reader
    assert words is not None, "the manifest of a bundle with a reader has its words"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        do = "free memory, or update onnxruntime"
        raise BackendError("the part cannot be loaded", where=path, found=str(error), do=do) from error
    _check_tensors(session, words, path, inputs, outputs)
    return session


class _Reader:
    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.scene_numbers: int = next(i.shape[1] for i in session.get_inputs() if i.name == "scene")

    def read(self, features: IntArray, scene: IntArray) -> ReaderLogits:
        outputs = _run(self._session, READER, OUTPUTS, {"features": features, "scene": scene})
        return ReaderLogits(*outputs)


class _PictureReader:
    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        _, _, self.height, self.width = session.get_inputs()[0].shape

    def read(self, picture: FloatArray) -> ReaderLogits:
        outputs = _run(self._session, PICTURE_READER, PICTURE_OUTPUTS, {"picture": picture})
        return ReaderLogits(**dict(zip(PICTURE_OUTPUTS, outputs, strict=True)), unknown=np.zeros(0, np.float32))


def _run(
    session: onnxruntime.InferenceSession, part: str, names: Sequence[str], inputs: Mapping[str, IntArray | FloatArray]
) -> list[FloatArray]:
    """The outputs without their first axis, which is the batch."""
    try:
        outputs = session.run(names, inputs)
    except Exception as error:
        do = "verify the bundle, or free memory"
        raise BackendError("a part failed to run", where=part, found=str(error), do=do) from error
    return [output[0] for output in outputs]


def _check_tensors(
    session: onnxruntime.InferenceSession,
    words: ReaderWords,
    path: Path,
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> None:
    people = len(words.people)
    expected = {
        "people": [1, people, 3],
        "clothes": [1, people, len(words.clothes)],
        "motion": [1, len(words.motions)],
        "level": [1, len(LEVELS)],
        "place": [1, len(words.places)],
        "night": [1, len(HOURS)],
        "position": [1, len(words.positions)],
    }
    inputs = {value.name for value in session.get_inputs()}
    found = {value.name: value.shape for value in session.get_outputs()}
    wrong = {name: found.get(name) for name, shape in expected.items() if found.get(name) != shape}
    if inputs != set(input_names) or found.keys() != set(output_names) or wrong:
        raise BackendError(
            "the part has other inputs or outputs than its words in the manifest",
            where=path,
            found=f"{', '.join(sorted(inputs))} -> {found}",
            expected=f"{', '.join(input_names)} -> {', '.join(output_names)}: {expected}",
            do="build the bundle again with this version",
        )
