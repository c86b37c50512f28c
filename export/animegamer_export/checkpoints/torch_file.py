"""Reads torch.save files without running any code from them.

Tensors become byte ranges, read on request; dicts, lists and plain values are built; any other class becomes an inert
`StandIn` with its name.
"""

from __future__ import annotations

import io
import math
import pickle
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The magic number of files older than PyTorch 1.6: consecutive pickles, then the data."""
_LOCAL_HEADER = 30
"""Size of a zip member's local header; name and extra field follow, their lengths at bytes 26 to 29."""
_STORAGES = {
    f"{name}Storage": dtype
    for name, dtype in {
        "Double": torch.float64,
        "Float": torch.float32,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
        "ComplexFloat": torch.complex64,
        "ComplexDouble": torch.complex128,
        "Untyped": torch.uint8,
    }.items()
}


class DamagedFileError(Exception):
    """Not a valid PyTorch file; the text says why."""


class _Fixed:
    """Ignores attributes set by a pickle."""

    __slots__ = ()

    def __setstate__(self, _: object) -> None:
        pass


class StandIn(_Fixed):
    """Stands for an instance, or the result of a call, that only the file's own code could build. Does nothing."""

    __slots__ = ()
    named = ""

    def __new__(cls, *_: object, **__: object) -> StandIn:
        """Ignores all arguments."""
        return object.__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        """Ignores all arguments."""

    def __call__(self, *_: object, **__: object) -> StandIn:
        """The result of a call is inert too."""
        return self

    def __setitem__(self, _: object, __: object) -> None:
        """Ignores the entry."""

    def append(self, _: object) -> None:
        """Ignores the entry."""

    add = extend = append


@dataclass(frozen=True)
class StoredTensor(_Fixed):
    """A tensor in a file: dtype, shape, and position of its data. negative: stored with the opposite sign."""

    storage: _Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    negative: bool = False

    def read(self, path: Path) -> Tensor:
        """The tensor, memory-mapped: pages are read on use. Must not be written to."""
        bytes_before = self.storage.place()
        mapped = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=path.stat().st_size)
        part = mapped[bytes_before : bytes_before + self.storage.bytes]
        if bytes_before % self.dtype.itemsize:
            part = part.clone()  # Legacy files have no alignment.
        stored = torch.empty(0, dtype=self.dtype).set_(part, self.offset, self.shape, self.stride)
        return -stored if self.negative else stored


class _Storage(_Fixed):
    """The data shared by tensors. `place` returns its first byte in the file, known once the file has been parsed."""

    def __init__(self, dtype: torch.dtype, numel: int, place: Callable[[], int]) -> None:
        self.dtype, self.numel, self.place = dtype, numel, place

    @property
    def bytes(self) -> int:
        return self.numel * self.dtype.itemsize


class _Entries(_Fixed, dict[Any, Any]):
    """An OrderedDict from the file."""


class _Function(_Fixed):
    """One of our functions, which a pickle cannot modify."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def read_torch_file(path: Path) -> Any:
    """The object in a torch.save file, with StoredTensor for tensors and StandIn for unknown classes.

    Raises DamagedFileError for any other file, and OSError. Does not verify checksums.
    """
    if zipfile.is_zipfile(path):
        return _read_zip(path)
    with path.open("rb") as file:
        return _read_legacy(file)


def _read_zip(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            members = {info.filename: info for info in archive.infolist()}
            pickles = [name for name in members if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise DamagedFileError("an archive without data.pkl")
            folder = pickles[0].removesuffix("data.pkl")
            order = folder + "byteorder"
            if order in members and archive.read(order).decode("ascii", "replace") != sys.byteorder:
                raise DamagedFileError(f"the data is not {sys.byteorder}-endian")

            def place(key: str, size: int) -> Callable[[], int]:
                info = members.get(f"{folder}data/{key}")
                if info is None or info.compress_type != zipfile.ZIP_STORED or info.file_size < size:
                    raise DamagedFileError(f"the data of data/{key} is missing, truncated or compressed")
                file.seek(info.header_offset)
                header = file.read(_LOCAL_HEADER)
                lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
                first = info.header_offset + _LOCAL_HEADER + lengths
                return lambda: first

            return _load(io.BytesIO(archive.read(pickles[0])), place)
    except (zipfile.BadZipFile, RuntimeError) as error:
        raise DamagedFileError(str(error)) from error


def _read_legacy(file: BinaryIO) -> Any:
    """Magic number, version and machine, the object, the storages' keys; then each storage's length and data."""
    if _load(file) != _LEGACY_MAGIC:
        raise DamagedFileError("neither an archive nor a legacy file's magic number")
    _load(file), _load(file)
    sizes: dict[str, int] = {}
    places: dict[str, int] = {}

    def place(key: str, size: int) -> Callable[[], int]:
        sizes[key] = size
        return lambda: places[key]

    found, keys = _load(file, place), _load(file)
    at, end = file.tell(), file.seek(0, io.SEEK_END)
    for key in keys if isinstance(keys, list) else ():
        places[key] = at + 8
        at += 8 + sizes.get(key, 0)
    if at > end or places.keys() < sizes.keys():
        raise DamagedFileError("truncated data")
    return found


def _load(file: BinaryIO | io.BytesIO, place: Callable[[str, int], Callable[[], int]] | None = None) -> Any:
    try:
        return _Unpickler(file, place).load()
    except DamagedFileError:
        raise
    except Exception as error:
        # A pickle of foreign bytes can fail in any way.
        raise DamagedFileError(f"unreadable pickle: {error or type(error).__name__}") from error


class _Unpickler(pickle.Unpickler):
    """Resolves only the classes below; never calls or imports what the file names."""

    def __init__(
        self, file: BinaryIO | io.BytesIO, place: Callable[[str, int], Callable[[], int]] | None = None
    ) -> None:
        super().__init__(file, encoding="utf-8")
        self._place = place
        self._storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """The class of a name, or a class of inert objects."""
        known = _KNOWN.get(f"{module}.{name}")
        if known is not None:
            return known
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        dtype = getattr(torch, name, None) if module == "torch" else None
        if isinstance(dtype, torch.dtype):
            return dtype
        return type("StandIn", (StandIn,), {"named": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage: ("storage", type, key, device, number of elements)."""
        kind, dtype, key, _, numel, *view = pid
        if self._place is None or kind != "storage" or any(part is not None for part in view):
            raise DamagedFileError("unknown PyTorch storage format")
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str) or not _whole(numel):
            raise DamagedFileError(f"storage {key!r} of {numel!r} elements of {getattr(dtype, 'named', dtype)}")
        if key not in self._storages:
            self._storages[key] = _Storage(dtype, numel, self._place(key, numel * dtype.itemsize))
        return self._storages[key]


def _tensor(
    storage: _Storage,
    offset: int,
    shape: Any,
    stride: Any,
    _: object = None,
    __: object = None,
    lazy: Any = None,
    *,
    dtype: torch.dtype | None = None,
) -> StoredTensor:
    """torch's _rebuild_tensor and _rebuild_tensor_v2. Raises DamagedFileError for data beyond the storage.

    lazy: operations that torch postponed when the tensor was saved: "neg", the opposite sign.
    """
    lazy = lazy or {}
    if not isinstance(lazy, Mapping) or lazy.keys() - {"neg"}:
        raise DamagedFileError(f"a tensor with unknown metadata: {lazy!r}")
    shape, stride, dtype = tuple(shape), tuple(stride), dtype or storage.dtype
    if len(shape) != len(stride) or not all(map(_whole, (offset, *shape, *stride))):
        raise DamagedFileError(f"a tensor of shape {shape}, stride {stride}, offset {offset}")
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if math.prod(shape) and (last + 1) * dtype.itemsize > storage.bytes:
        raise DamagedFileError(f"a tensor of shape {list(shape)} exceeds the {storage.numel} elements of its storage")
    return StoredTensor(storage, dtype, offset, shape, stride, bool(lazy.get("neg")))


def _tensor_of_type(
    storage: _Storage, offset: int, shape: Any, stride: Any, _: Any, __: Any, dtype: Any, lazy: Any = None
) -> Any:
    """torch's _rebuild_tensor_v3, for dtypes without a storage class."""
    return _tensor(storage, offset, shape, stride, lazy=lazy, dtype=dtype)


def _parameter(tensor: Any, *_: object) -> Any:
    """torch's _rebuild_parameter: the tensor without gradient, hooks and attributes."""
    return tensor


def _subclass(function: Any, _: object, arguments: Any, __: object) -> Any:
    """torch's _rebuild_from_type_v2: the tensor of a subclass, or of a tensor with attributes."""
    return function(*arguments) if isinstance(function, _Function) else StandIn()


_KNOWN: Mapping[str, Any] = {
    "collections.OrderedDict": _Entries,
    "torch.Size": tuple,
    "torch._utils._rebuild_tensor": _Function(_tensor),
    "torch._utils._rebuild_tensor_v2": _Function(_tensor),
    "torch._utils._rebuild_tensor_v3": _Function(_tensor_of_type),
    "torch._utils._rebuild_parameter": _Function(_parameter),
    "torch._utils._rebuild_parameter_with_state": _Function(_parameter),
    "torch._tensor._rebuild_from_type_v2": _Function(_subclass),
}


def _whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
