"""The files of a student and of a light decoder: safetensors with a state dict, and what it is for in the metadata."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from animegamer_export.checkpoints.tiny_decoder import is_tiny_decoder, read_tiny_decoder
from animegamer_export.support.plans import FINE_STEPS
from animegamer_rt.backends.torch.networks import read_size
from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.denoise_plan import Branch, DenoisePlan, build_plan
from animegamer_rt.bundle.files import remove
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER, VAE
from animegamer_rt.errors import BundleError, CheckpointError, OutputError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.light_decoder import LightDecoder, LightDecoderSize
from animegamer_rt.models.tiny_decoder import TinyDecoder

TEACHER, TIMESTEPS, SIZE = "teacher", "timesteps", "size"
"""Metadata of a student, and of a light decoder (fields of LightDecoderSize as JSON)."""
Network = TypeVar("Network", bound=nn.Module)


def teacher_hash(bundle: Bundle) -> str:
    """The sha256 of a bundle's denoiser: of its weights, whatever graphs run them."""
    files = bundle.manifest.parts[DENOISER].data_files
    return hashlib.sha256("".join(bundle.manifest.files[name].sha256 for name in files).encode()).hexdigest()


def student_plan(timesteps: Sequence[int]) -> DenoisePlan:
    """A student's steps: unguided, with the noise of the exact plan's steps. Raises PlanError."""
    branches: list[Branch] = ["conditional"] * len(timesteps)
    return build_plan(timesteps, guidance=[1.0] * len(timesteps), branches=branches, noise_steps=FINE_STEPS)


def write_student(path: Path, weights: Mapping[str, Tensor], teacher: str, timesteps: Sequence[int]) -> None:
    """Writes a student in the weights' dtypes. teacher: `teacher_hash` of the denoiser that it was made of."""
    metadata = {TEACHER: teacher, TIMESTEPS: ",".join(map(str, timesteps))}
    write_whole(path, lambda unfinished: save_file(dict(weights), unfinished, metadata))


def read_student(path: Path, bundle: Bundle) -> tuple[Denoiser, DenoisePlan]:
    """A student in float32, and its steps.

    Raises CheckpointError for a file that holds none of the bundle's size, and BundleError for one of another denoiser.
    """
    state, metadata = _read(path)
    found, expected = metadata.get(TEACHER, "no teacher"), teacher_hash(bundle)
    if found != expected:
        raise BundleError(
            "the student was made of another denoiser than the bundle's",
            where=path,
            found=found[:16],
            expected=f"{expected[:16]}, that of {bundle.folder}",
            do="make it of this bundle's denoiser",
        )
    words = metadata.get(TIMESTEPS, "").split(",")
    if not all(word.isdecimal() for word in words):
        raise CheckpointError(f"its {TIMESTEPS} are not a list like 999,319,19", where=path, do="train it again")
    network = _filled(Denoiser(read_size(bundle, DEFAULT_PARTS, DENOISER)), state, path)
    return network, student_plan([int(word) for word in words])


def write_light_decoder(path: Path, network: LightDecoder) -> None:
    """Writes a light decoder in float16."""
    weights = {name: weight.half().cpu().contiguous() for name, weight in network.state_dict().items()}
    metadata = {SIZE: json.dumps(asdict(network.size))}
    write_whole(path, lambda unfinished: save_file(weights, unfinished, metadata))


def read_light_decoder(path: Path, bundle: Bundle) -> LightDecoder | TinyDecoder:
    """The light decoder in a file, in float32: one made of this bundle, or TAECVX. Raises CheckpointError."""
    if path.suffix == ".pth" or is_tiny_decoder(path):
        return read_tiny_decoder(path, read_size(bundle, DEFAULT_PARTS, VAE).scale)
    state, metadata = _read(path)
    try:
        network = LightDecoder(read_record(LightDecoderSize, json.loads(metadata.get(SIZE, "{}")), f"{path}: {SIZE}"))
    except (ValueError, RuntimeError) as error:  # no JSON, or no network of this size
        raise CheckpointError(f"its {SIZE} is impossible ({error})", where=path, do="give another file") from error
    return _filled(network, state, path)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file that appears complete or not at all. Raises OutputError."""
    unfinished = path.with_suffix(".part")
    try:
        write(unfinished)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())  # else a power cut may leave the name without the content
        unfinished.replace(path)
    except (OSError, SafetensorError, RuntimeError) as error:  # RuntimeError: torch.save's, for a full disk
        remove(unfinished)
        do = "free some space and run it again: it continues from there"
        found = "no more could be written" if isinstance(error, RuntimeError) else str(error)
        raise OutputError("cannot be written", where=path, found=found, do=do) from error


@contextmanager
def earlier(path: Path) -> Iterator[None]:
    """Reads what an earlier run has left in the work folder. Raises CheckpointError for a damaged file."""
    try:
        yield
    except (OSError, SafetensorError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        said, do = str(error).partition("\n")[0], "delete it and run the command again: it is made anew"
        raise CheckpointError(f"cannot be read ({said})", where=path, do=do) from error


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in float32, and the metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).float() for name in file.keys()}, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"not a safetensors file ({error})", where=path, do="give another file") from error


def _filled(network: Network, state: Mapping[str, Tensor], path: Path) -> Network:
    """The network with these weights; its buffers are computed and stay. Raises CheckpointError."""
    wanted = {name: tuple(one.shape) for name, one in network.named_parameters()}
    given = {name: tuple(one.shape) for name, one in state.items()}
    known = network.state_dict().keys()
    wrong = {name: (given[name], shape) for name, shape in wanted.items() if name in given and given[name] != shape}
    if given.keys() - known or wanted.keys() - given or wrong:
        raise CheckpointError(
            f"not the weights of a {type(network).__name__} of this size",
            where=path,
            missing=sorted(wanted.keys() - given),
            unexpected=sorted(given.keys() - known),
            misshapen=wrong,
        )
    network.load_state_dict({name: state[name] for name in wanted}, strict=False)
    return network.eval()
