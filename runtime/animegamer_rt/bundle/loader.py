"""Bundles: folders of a manifest, ONNX parts and a tokenizer. Opens and verifies them.

Loading a bundle verifies all of it (sizes and sha256): that takes 30 ms for the shipped one, and a damaged file never
shows up as a bad clip.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

from animegamer_rt.errors import BundleError, BundleFileError, BundleNotFoundError, PlanError
from animegamer_rt.untrusted import short

from .config import suggest, suggest_only
from .files import sha256
from .manifest import EXACT, RANDOM_WEIGHTS, Manifest, PlanEntry
from .manifest_file import FIX_MANIFEST, MANIFEST, is_file, read_manifest, refuse_pointer, unreadable
from .onnx_locations import data_locations
from .roles import DEFAULT_PARTS, NETWORKS, PLAY_ROLES, ROLES, PlanParts, graph_names
from .search import find


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle: its folder and manifest. Valid until the folder changes."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        return self.folder / name

    def part_path(self, part: str, eight_bit: bool = False) -> Path:
        """Path of a graph's ONNX file; with `eight_bit`, of its 8-bit file if it has one.

        Raises BundleError if the bundle has no such part.
        """
        parts = self.manifest.parts
        if part not in parts:
            raise BundleError(f"the bundle has no part {part!r}", where=self.folder, do=suggest(part, parts))
        record = parts[part]
        return self.folder / ((eight_bit and record.int8_file) or record.file)

    def part_sha256(self, part: str, eight_bit: bool = False) -> str:
        """One hash over the file of `part_path` and its data files, from the manifest's hashes."""
        names = (self.part_path(part, eight_bit).name, *self.manifest.parts[part].data_files)
        return hashlib.sha256(json.dumps([self.manifest.files[name].sha256 for name in names]).encode()).hexdigest()

    def part_hash(self, role: str, part: str) -> str:
        """One short hash over all files of a part; empty if the bundle does not have it."""
        records = [record for graph in graph_names(role, part) if (record := self.manifest.parts.get(graph))]
        files = sorted({file for record in records for file in record.files})
        hashes = "".join(self.manifest.files[file].sha256 for file in files)
        return hashlib.sha256(hashes.encode()).hexdigest()[:12] if hashes else ""

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.manifest.files.values())

    def parts_of(self, plan: str | None = None) -> PlanParts:
        """The parts that play a plan (None: the default one). Raises PlanError for an unknown plan."""
        return PlanParts(**self._entry(plan).parts)

    @property
    def graph_parts(self) -> dict[str, tuple[str, str]]:
        """Graph -> its role and part, of the default parts and of all that plans name."""
        plans = [DEFAULT_PARTS, *map(self.parts_of, self.manifest.plans)]
        found = {graph: (role, parts[role]) for role in ROLES for parts in plans for graph in parts.graphs(role)}
        return {graph: part for graph, part in found.items() if graph in self.manifest.parts}

    @property
    def graph_roles(self) -> dict[str, str]:
        """Graph -> role, of the same parts."""
        return {graph: role for graph, (role, _) in self.graph_parts.items()}

    def network(self, role: str, part: str) -> str:
        record = self.manifest.parts.get(graph_names(role, part)[0])
        return (record.network if record else "") or NETWORKS[role]

    def sizes(self, role: str, part: str) -> Mapping[str, Any]:
        """The sizes of a part: its own record, else that of its kind of network; empty if the bundle has neither."""
        found: Mapping[str, Any] = self.manifest.sizes.get(part) or self.manifest.sizes.get(
            self.network(role, part), {}
        )
        return found

    @property
    def own_files(self) -> set[str]:
        """Files used only by a plan's own parts: sessions of other plans do not depend on them."""
        own = {
            graph for name in self.manifest.plans for item in self.parts_of(name).own() for graph in graph_names(*item)
        }
        parts = self.manifest.parts.items()
        shared = {file for graph, part in parts if graph not in own for file in part.files}
        return {file for graph in own for file in self.manifest.parts[graph].files} - shared

    @property
    def hashes(self) -> dict[str, str]:
        """sha256 of every file that the frames of a caption depend on, whatever computes them.

        Left out are built engines, `own_files` (in the engines' identity instead) and the language file: other rules
        change what later sentences mean, not what a game has shown.
        """
        left_out = {engine.file for engine in self.manifest.engines.values()} | self.own_files
        if self.manifest.reader is not None:
            left_out.add(self.manifest.reader.language)
        return {name: record.sha256 for name, record in self.manifest.files.items() if name not in left_out}

    @property
    def fingerprint(self) -> str:
        """Short hash of `hashes`. Of the manifest itself, `rules_hash` and `steps_hash` hold what frames depend on."""
        return _short_hash(sorted(self.hashes.items()), 16)

    def rules_hash(self, parts: PlanParts = DEFAULT_PARTS) -> str:
        """Short hash of the manifest's settings that frames of these parts depend on, whatever the plan's steps.

        Defaults are left out, so that a setting that a later version adds leaves the hash as it was.
        """
        manifest = self.manifest
        records = manifest.geometry, manifest.tokenizer, manifest.motion_tokenizer, manifest.compatibility
        said = [
            {one.name: getattr(record, one.name) for one in fields(record) if getattr(record, one.name) != one.default}
            for record in records
        ]
        said += [{role: [self.network(role, parts[role]), self.sizes(role, parts[role])]} for role in PLAY_ROLES]
        return _short_hash(said, 12)

    def steps_hash(self, plan: str | None = None) -> str:
        """Short hash of a plan's steps (None: the default plan's). Raises PlanError for an unknown plan."""
        return _short_hash(self._entry(plan).plan, 12)

    @property
    def default_plan(self) -> str:
        """Name of the default plan."""
        return next(name for name, entry in self.manifest.plans.items() if entry.default)

    @property
    def unmeasured_plans(self) -> list[str]:
        """Plans without figures against `exact`: not played until `animegamer-rt search-plans` has measured them.

        Empty for random weights: such a bundle is only for measuring time and memory.
        """
        if self.manifest.origin == RANDOM_WEIGHTS:
            return []
        return [name for name, entry in self.manifest.plans.items() if name != EXACT and not entry.fidelity]

    def plan(self, name: str | None = None, *, unmeasured: bool = False) -> Mapping[str, Any]:
        """The denoise plan of this name (or the default one) as data for `DenoisePlan.from_dict`.

        Raises PlanError if it is unknown, or one of `unmeasured_plans` without `unmeasured`.
        """
        entry = self._entry(name)
        if name in self.unmeasured_plans and not unmeasured:
            raise PlanError(
                f"the plan {name!r} of the bundle {self.manifest.name!r} was never measured against {EXACT!r}",
                do=f"run: animegamer-rt search-plans {shlex.quote(str(self.folder))}, or use the plan {EXACT}",
            )
        return entry.plan

    def _entry(self, name: str | None) -> PlanEntry:
        name = self.default_plan if name is None else name
        if not isinstance(name, str) or name not in self.manifest.plans:
            raise PlanError(
                f"the bundle {self.manifest.name!r} has no plan {name!r}",
                expected=f"one of {', '.join(self.manifest.plans)}",
                do=suggest_only(str(name), self.manifest.plans),
            )
        return self.manifest.plans[name]


def _short_hash(data: object, digits: int) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:digits]


def load(folder: str | Path) -> Bundle:
    """Reads and verifies the bundle in `folder`. Raises BundleNotFoundError, BundleFormatError or BundleFileError."""
    bundle = read(folder)
    verify(bundle)
    return bundle


def read(folder: str | Path) -> Bundle:
    """The bundle in `folder`, unverified. Raises BundleNotFoundError or BundleFormatError."""
    folder = Path(folder)
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        what = "the folder's name is not UTF-8, as onnxruntime needs it"
        raise BundleNotFoundError(what, where=ascii(str(folder)), do="rename the folder") from error
    return Bundle(folder, read_manifest(folder / MANIFEST))


def verify(bundle: Bundle) -> None:
    """Checks size and sha256 of every file in the manifest, and that no part reads another file.

    Raises BundleFileError at the first wrong one.
    """
    do = f"restore the file, or build the bundle {bundle.manifest.name!r} again"
    for name, record in bundle.manifest.files.items():
        path = bundle.folder / name
        if not is_file(path):
            raise BundleFileError("the bundle's file is missing", where=path, expected=f"{record.bytes} bytes", do=do)
        size = path.stat().st_size
        if size != record.bytes:
            refuse_pointer(path)
            what = "truncated" if size < record.bytes else "too long"
            what = f"the bundle's file is {what}, or another bundle's"
            raise BundleFileError(what, where=path, found=f"{size} bytes", expected=f"{record.bytes} bytes", do=do)
    for name, record in bundle.manifest.files.items():
        try:
            found = sha256(bundle.folder / name)
        except OSError as error:
            raise unreadable(bundle.folder / name, error) from error
        if found != record.sha256:
            raise BundleFileError(
                "the bundle's file is damaged, or is another bundle's",
                where=bundle.folder / name,
                found=f"sha256 {found[:16]}..",
                expected=f"{record.sha256[:16]}..",
                do=do,
            )
    _check_locations(bundle)


def _check_locations(bundle: Bundle) -> None:
    """Raises BundleFileError if a part or a typed graph reads a data file that the manifest does not list for it."""
    manifest = bundle.manifest
    graphs = [(part, name) for part in manifest.parts.values() for name in (part.file, part.int8_file) if name]
    typed = {key.removesuffix("-rtx"): engine.file for key, engine in manifest.engines.items() if key.endswith("-rtx")}
    graphs += [(manifest.parts[graph], name) for graph, name in typed.items() if graph in manifest.parts]
    for part, name in graphs:
        path = bundle.folder / name
        try:
            used = {str(PurePosixPath(name).parent / one) for one in data_locations(path)}
        except OSError as error:
            raise unreadable(path, error) from error
        except ValueError as error:
            raise BundleFileError("not an ONNX file", where=path, found=str(error), do=FIX_MANIFEST) from error
        if unlisted := sorted(used - set(part.data_files)):
            raise BundleFileError(
                "the part reads a file that the manifest does not list for it",
                where=path,
                found=short(unlisted[0]),
                expected=", ".join(part.data_files) or "no data file",
                do=FIX_MANIFEST,
            )


def open_bundle(name_or_path: str | Path = "pocket", frame_size: tuple[int, int] | None = None) -> Bundle:
    """`load(find(..))`. frame_size: width and height in pixels, for simulated engines; None: the bundle's own."""
    bundle = load(find(name_or_path))
    if frame_size is None:
        return bundle
    geometry = replace(bundle.manifest.geometry, width=frame_size[0], height=frame_size[1])
    return replace(bundle, manifest=replace(bundle.manifest, geometry=geometry))
