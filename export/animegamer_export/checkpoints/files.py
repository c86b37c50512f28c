"""Opens checkpoint files memory-mapped, without running pickled code."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import sentencepiece
import torch
from google.protobuf.message import DecodeError
from safetensors import SafetensorError, safe_open
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from animegamer_rt.bundle.files import sha256
from animegamer_rt.errors import CheckpointError

from .folders import DOWNLOAD_AGAIN, TAKE_FLOATS, first_line, not_as_named, require_file, shards

Shape = tuple[int, ...]
NOTHING: Mapping[str, str] = MappingProxyType({})
FLOATS = ("float16", "bfloat16", "float32", "float64")
"""Dtypes of weights."""
PUBLISHED_PIECES = 32000
"""Of Mistral's and T5's tokenizer, and of Llama 2's."""
WRAPPERS = ("module", "state_dict", "model", "model_state_dict")
"""Entries under which DeepSpeed, Lightning and others save a model's tensors."""
MAX_WRAPPERS = 8
"""One within the other; a file may hold itself."""
ADDED_BY_TRAINING = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Components of keys: of DistributedDataParallel, torch.compile, FSDP and activation checkpointing."""
ALPHA = re.compile(r"(.*\.)?(lora|network|ss_network)_alpha|(.*lora.*\.)?alpha")
"""Names of LoRA's alpha, also nested as `lora.alpha`; a bare `alpha` elsewhere may be a loss's."""
MERGE = "merge it into the model with the tool that trained it, and pass the merged model"
QUANTISED = {
    r"\.absmax$|\.quant_map$|\.quant_state\.": "bitsandbytes (NF4 or FP4)",
    r"\.SCB$": "bitsandbytes (INT8)",
    r"\.g_idx$": "GPTQ",
    r"\.(qweight|qzeros)$": "AWQ",
    r"\.weight_packed$": "compressed-tensors",
    r"\.weight_scale_2$": "ModelOpt (NVFP4)",
    r"\.weight_scale(_inv)?$": "FP8 or INT8 with scales",
    r"\.weight_scales$": "EETQ",
    r"\.weight(\.|:)_(data|scale|qdata)$": "Quanto or torchao",
    r"\.codebooks$": "AQLM",
    r"\.W_q$": "HQQ",
    r"\.q_(invperm|groups)$": "ExLlamaV2",
    r"\.biases$": "MLX",
}
OTHER_ADAPTERS = {
    r"lora_magnitude_vector|dora_scale": "DoRA",
    r"\.hada_w": "LoHa",
    r"\.lokr_w": "LoKr",
    r"\.ia3_l(\.|$)": "IA3",
    r"\.oft_[RSrs]\b": "OFT",
    r"\.vera_lambda_": "VeRA",
    r"\.lora_embedding_": "LoRA on the embedding",
    r"\.lora_B\..*\bbias$": "LoRA with biases",
    r"\blora_unet_|\.lora_(down|up)\.": "LoRA under kohya's names",
}
OTHER_FORMS = (
    *((pattern, f"weights quantised by {tool}", TAKE_FLOATS) for pattern, tool in QUANTISED.items()),
    *((pattern, f"an adapter of another kind ({kind})", MERGE) for pattern, kind in OTHER_ADAPTERS.items()),
    (r"\.(qkv_proj|gate_up_proj)\.", "matrices that are fused, as for vLLM", "pass the model as transformers saves it"),
    (r"(^|\.)transformer_blocks\.\d", "the names of diffusers", "convert it to the published names, which are SAT's"),
)
"""Patterns of the keys that files of other forms have, what those are, and what to do."""


@dataclass(frozen=True)
class TensorFile:
    """The tensors of one checkpoint, mapped: pages are read on use. They must not be written to.

    beside: the file's other entries, which are not read, and why. base: the keys that come from a base model under this
    file, and their file.
    """

    where: Path
    tensors: Mapping[str, Tensor]
    beside: Mapping[str, str] = field(default_factory=dict)
    base: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape of each tensor."""
        return {key: tuple(tensor.shape) for key, tensor in self.tensors.items()}


def dtype_name(tensor: Tensor) -> str:
    """A dtype as in FLOATS."""
    return str(tensor.dtype).removeprefix("torch.")


def has_numbers(tensor: Tensor) -> bool:
    """Whether the tensor is dense; a meta tensor is only a shape, as trainers save what lies on another device."""
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested


def open_tensors(tensors: Mapping[str, Tensor], where: Path, beside: Mapping[str, str] = NOTHING) -> TensorFile:
    """Tensors as a file, without the components that training adds to keys.

    Raises CheckpointError for OTHER_FORMS, FP8, and tensors without plain numbers.
    """
    hollow = next((key for key, tensor in tensors.items() if not has_numbers(tensor)), None)
    if hollow is not None:
        what = "weights without plain numbers (meta, sparse or nested tensors)"
        raise CheckpointError(f"{what}; found {hollow}", where=where, do=TAKE_FLOATS)
    for pattern, form, do in OTHER_FORMS:
        found = next((key for key in tensors if re.search(pattern, key)), None)
        if found is not None:
            raise CheckpointError(f"{form}; found {found}", where=where, do=do)
    for key, name in ((key, dtype_name(tensor)) for key, tensor in tensors.items()):
        if name.startswith("float8"):
            raise CheckpointError(f"weights in FP8; found {key} of {name}", where=where, do=TAKE_FLOATS)
    return renamed(TensorFile(where, tensors, beside), plain_key)


class StandIn:
    """Stands for an instance, or the result of a call, that only code outside PyTorch could build. Does nothing."""

    named = ""

    def __new__(cls, *_: object, **__: object) -> StandIn:
        """Ignores all arguments."""
        return object.__new__(cls)

    def __setstate__(self, _: object) -> None:
        """Ignores all attributes."""


def load_torch(path: Path) -> Any:
    """The object of a torch.save file, read by PyTorch with weights_only, which runs no code from the file.

    Tensors are mapped. Classes beside them become StandIns; in files older than PyTorch 1.6 they are refused. Reads the
    whole file once to verify its checksums (those older files have none). Raises CheckpointError for a file that is
    missing, truncated, damaged, not a PyTorch file, or that needs code to be run.
    """
    require_file(path)
    foreign: list[str] = []
    try:
        zipped = zipfile.is_zipfile(path)
        if zipped:
            _check_sums(path)
            foreign = sorted(get_unsafe_globals_in_checkpoint(str(path)))
        with safe_globals([(type("StandIn", (StandIn,), {"named": name}), name) for name in foreign]):
            return torch.load(path, map_location="cpu", mmap=zipped, weights_only=True)
    except CheckpointError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    except pickle.UnpicklingError as error:
        refused = re.findall(r"GLOBAL ([\w.]+)", str(error)) or foreign[:3]
        raise (_runs_code(path, *refused) if refused else _not_torch(path, "unreadable pickle")) from error
    except Exception as error:
        # A pickle of foreign bytes can fail in any way.
        raise _not_torch(path, first_line(error) or type(error).__name__) from error


def open_torch(path: Path) -> TensorFile:
    """A torch.save file of named tensors, also under one of WRAPPERS.

    Raises CheckpointError as `load_torch` does, and for a file whose tensors would need code to be run.
    """
    loaded = load_torch(path)
    beside: dict[str, object] = {}
    for _ in range(MAX_WRAPPERS):
        if not isinstance(loaded, Mapping):
            break
        inner = [name for name in WRAPPERS if name in loaded and not isinstance(loaded[name], Tensor)]
        if len(inner) > 1:
            raise CheckpointError(
                f"two sets of weights: entries {' and '.join(inner)}", where=path, do="keep the right one"
            )
        if not inner:
            break
        for key, value in loaded.items():
            if key != inner[0]:
                beside[f"{_name(key)}: {value}" if isinstance(value, (int, float)) else _name(key)] = value
                beside |= dict.fromkeys(_alphas({key: value}))
        loaded = loaded[inner[0]]
    if isinstance(loaded, StandIn):
        raise _runs_code(path, loaded.named)
    if not isinstance(loaded, Mapping):
        raise CheckpointError(
            f"holds {kind_of(loaded)}, not named tensors", where=path, do="pass the checkpoint itself"
        )
    foreign = [
        f"{_name(key)} ({kind_of(value)})"
        for key, value in loaded.items()
        if not isinstance(value, Tensor) or not isinstance(key, str)
    ]
    if foreign:
        raise CheckpointError(
            "entries that are not named tensors", where=path, unexpected=foreign, do="use the published file"
        )
    tensors: dict[str, Tensor] = {key: value.detach() for key, value in loaded.items()}
    return open_tensors(tensors, path, {name: _why_beside(value, tensors) for name, value in beside.items()})


def open_safetensors(path: Path) -> TensorFile:
    """A mapped safetensors file; the format has no checksums. Raises CheckpointError if missing or truncated."""
    require_file(path)
    try:
        handle: Any = safe_open(path, framework="pt")
        tensors = {key: handle.get_tensor(key) for key in handle.keys()}
    except OSError as error:
        raise _unreadable(path, error) from error
    except SafetensorError as error:
        raise not_as_named(path, f"truncated or not a safetensors file ({first_line(error)})") from error
    stated = {name: text for name, text in (handle.metadata() or {}).items() if name != "format"}
    notes = [*_alphas(stated), *(f"{name}: {text:.60}" for name, text in stated.items())]
    return open_tensors(tensors, path, dict.fromkeys(notes, "a note in the file's header"))


def open_weights(paths: Sequence[Path]) -> TensorFile:
    """One or more files or indexes as one file, by content: safetensors or torch.save.

    Raises CheckpointError if two of them hold one key.
    """
    files = [_shards(path) if path.suffix == ".json" else _open(path) for path in paths]
    return files[0] if len(files) == 1 else joined(paths[0].parent, files)


def joined(where: Path, files: Sequence[TensorFile]) -> TensorFile:
    """Several files as one. Raises CheckpointError if two of them hold one key."""
    holder: dict[str, TensorFile] = {}
    for file in files:
        for key in file.tensors:
            if key in holder:
                raise CheckpointError(
                    f"{key} is in two files: {holder[key].where.name} and {file.where.name}",
                    where=where,
                    do="keep the right one",
                )
            holder[key] = file
    tensors = {key: file.tensors[key] for key, file in holder.items()}
    return TensorFile(where, tensors, {name: why for file in files for name, why in file.beside.items()})


def renamed(file: TensorFile, rename: Callable[[str], str]) -> TensorFile:
    """The file with every key renamed. Raises CheckpointError, naming both, if two keys get one name."""
    old: dict[str, str] = {}
    for key in file.tensors:
        name = rename(key)
        if name in old:
            raise CheckpointError(
                f"two keys for one weight: {old[name]} and {key}", where=file.where, do="keep the right one"
            )
        old[name] = key
    return replace(file, tensors={name: file.tensors[key] for name, key in old.items()})


def count_pieces(path: Path, published: str, do: str) -> int:
    """The number of pieces of a sentencepiece model.

    published: sha256 of the file to use. Raises CheckpointError with the advice `do` for files of another kind, and for
    another tokenizer of as many pieces, which would give every text other tokens.
    """
    require_file(path)
    try:
        pieces = int(sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes()).get_piece_size())
    except (OSError, RuntimeError) as error:
        raise CheckpointError("not a sentencepiece model", where=path, do=do) from error
    if pieces == PUBLISHED_PIECES and (found := sha256(path)) != published:
        wrong: dict[str, tuple[object, object]] = {"sha256": (found, published)}
        raise CheckpointError("the tokenizer of another model", where=path, misshapen=wrong, do=do)
    return pieces


def same_tokens(path: Path, other: Path) -> bool:
    """Whether two sentencepiece models give every text the same pieces; a trainer may save one in other bytes."""
    contents, messages = (path.read_bytes(), other.read_bytes()), cast(Any, sentencepiece_model_pb2)
    try:
        first, second = map(messages.ModelProto.FromString, contents)
    except DecodeError:
        return False
    kinds = [(one.trainer_spec.model_type, one.trainer_spec.byte_fallback) for one in (first, second)]
    same = kinds[0] == kinds[1] and first.pieces == second.pieces and first.normalizer_spec == second.normalizer_spec
    return bool(same)


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    """The error of a disk that cannot map or read a file: some network disks cannot."""
    do = "copy it to a local disk, or check its permissions"
    return CheckpointError(f"the file cannot be read ({first_line(error)})", where=path, do=do)


def _runs_code(path: Path, *names: str) -> CheckpointError:
    refused = f"refused: reading it would run code ({', '.join(names)})"
    return CheckpointError(refused, where=path, do="use the published file, or save the weights alone")


def _not_torch(path: Path, why: str) -> CheckpointError:
    return not_as_named(path, f"truncated or not a PyTorch file ({why})")


def _check_sums(path: Path) -> None:
    """Reads PyTorch's archive once, a megabyte at a time, and verifies its checksums."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if not any(name.endswith("/data.pkl") for name in names):
            raise CheckpointError(f"an archive of other files ({', '.join(names[:1])})", where=path, do="unpack it")
        damaged = archive.testzip()
    if damaged is not None:
        raise CheckpointError(f"damaged: checksum mismatch in {damaged}", where=path, do=DOWNLOAD_AGAIN)


def _open(path: Path) -> TensorFile:
    require_file(path)
    with path.open("rb") as file:
        # A safetensors file begins with the length of its JSON header.
        is_safetensors = file.read(9)[8:] == b"{" or path.suffix == ".safetensors"
    return open_safetensors(path) if is_safetensors else open_torch(path)


def _shards(index: Path) -> TensorFile:
    places = shards(index)
    files = {path: _open(path) for path in sorted(set(places.values()))}
    names = {key: plain_key(key) for key in places}
    absent = [key for key, path in places.items() if names[key] not in files[path].tensors]
    if absent:
        raise CheckpointError(
            "the shards lack keys listed in their index", where=index.parent, missing=absent, do="download them again"
        )
    chosen = [
        replace(file, tensors={names[key]: file.tensors[names[key]] for key, place in places.items() if place == path})
        for path, file in files.items()
    ]
    unlisted = [key for path, file in files.items() for key in file.tensors.keys() - set(names.values())]
    whole = joined(index.parent, chosen)
    return replace(whole, beside={**whole.beside, **dict.fromkeys(sorted(unlisted), "not in the index")})


def plain_key(key: str) -> str:
    """The key without the components that training adds."""
    return ".".join(part for part in key.split(".") if part not in ADDED_BY_TRAINING)


def _why_beside(value: object, weights: Mapping[str, Tensor]) -> str:
    """Why an entry beside the weights is not read. Trainers save averages (EMA) there."""
    known = {(_end(key), tensor.shape) for key, tensor in weights.items()}
    named = value.items() if isinstance(value, Mapping) else ()
    if any(isinstance(one, Tensor) and (_end(str(key)), one.shape) in known for key, one in named):
        return "another copy of the weights, such as their average; to export it, save it in the weights' place"
    return "an entry beside the weights"


def _end(key: str) -> str:
    return ".".join(key.split(".")[-3:])


def _alphas(stated: Mapping[Any, object], inside: str = "") -> Iterator[str]:
    """Each alpha of LoRA in nested settings, or in JSON among them, as `hyper_parameters.lora_alpha: 64`."""
    for key, value in stated.items():
        path = f"{inside}{_name(key)}"
        if isinstance(value, str) and value.startswith("{"):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, Mapping) and path.count(".") < MAX_WRAPPERS:
            yield from _alphas(value, f"{path}.")
        elif isinstance(value, (int, float)) and ALPHA.fullmatch(path):
            yield f"{path}: {value}"


def kind_of(value: object) -> str:
    """Describes an entry by the class name in its file."""
    if isinstance(value, StandIn):
        return value.named
    return "a tensor" if isinstance(value, Tensor) else type(value).__name__


def _name(key: object) -> str:
    return key if isinstance(key, str) else f"a key of type {kind_of(key)}"
