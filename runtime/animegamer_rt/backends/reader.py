"""Runs a bundle's instruction reader with onnxruntime: on the CPU, in one thread, whatever device plays the rest.

It takes about 2 ms a sentence, so no other device would be faster. Knows the part's tensors; nothing of words.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import onnxruntime

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import BackendError
from animegamer_rt.state.scene import HOURS, LEVELS

from .interface import IntArray, ReaderEngine, ReaderLogits

INPUTS = ("features", "scene")
OUTPUTS = tuple(field.name for field in fields(ReaderLogits))


def load_reader(bundle: Bundle) -> ReaderEngine:
    """The reader of a bundle that has one.

    Raises BackendError when it cannot be loaded, or when its outputs are not those of the manifest's words.
    """
    path, words = bundle.part_path("reader"), bundle.manifest.reader
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
    _check_tensors(session, words, path)
    return _Reader(session)


class _Reader:
    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session

    def read(self, features: IntArray, scene: IntArray) -> ReaderLogits:
        try:
            outputs = self._session.run(OUTPUTS, {"features": features, "scene": scene})
        except Exception as error:
            do = "verify the bundle, or free memory"
            raise BackendError("a part failed to run", where="reader", found=str(error), do=do) from error
        return ReaderLogits(*(output[0] for output in outputs))


def _check_tensors(session: onnxruntime.InferenceSession, words: ReaderWords, path: Path) -> None:
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
    if inputs != set(INPUTS) or found.keys() != set(OUTPUTS) or wrong:
        raise BackendError(
            "the part has other inputs or outputs than its words in the manifest",
            where=path,
            found=f"{', '.join(sorted(inputs))} -> {found}",
            expected=f"{', '.join(INPUTS)} -> {expected} and unknown",
            do="build the bundle again with this version",
        )
