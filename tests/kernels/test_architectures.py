"""What nvcc made: code of every kernel for every architecture that CMakeLists.txt names, read out of the library."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from animegamer_kernels import Library

ROOT = Path(__file__).resolve().parents[2]
ASKED = {80, 86, 89, 90, 120}
"""A100, RTX 30, RTX 40, H100 and RTX 50."""
PTX, MACHINE_CODE = 1, 2
# A fat binary, one for each source: this magic, version and header's size, then eight bytes of size and its entries.
# NVIDIA does not document it: cuobjdump --list-elf --list-ptx shows the same, but does not come with every nvcc.
FAT_BINARY = struct.pack("<IHH", 0xBA55ED50, 1, 16)

Code = tuple[int, int]
"""PTX or MACHINE_CODE, and the architecture that it is for."""


def named() -> set[Code]:
    """What CMakeLists.txt asks for: `80-real` is machine code alone, `120` PTX too."""
    found = re.search(r'set\(CMAKE_CUDA_ARCHITECTURES "([^"]+)"', (ROOT / "CMakeLists.txt").read_text())
    assert found is not None
    words = [word.partition("-") for word in found[1].split(";")]
    return {(kind, int(number)) for number, _, real in words for kind in (MACHINE_CODE, *(() if real else (PTX,)))}


def held(library: Path) -> Iterator[set[Code]]:
    """Of each source that nvcc compiled, the code that the library holds."""
    data = library.read_bytes()
    for begin in (match.start() for match in re.finditer(re.escape(FAT_BINARY), data)):
        at = begin + 16
        end, codes = at + struct.unpack_from("<Q", data, begin + 8)[0], set()
        while at < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
            codes.add((kind, struct.unpack_from("<I", data, at + 28)[0]))
            at += header + size
        yield codes


def test_library_built_by_nvcc_holds_every_kernel_for_every_architecture(library: Library) -> None:
    wanted, found = named(), list(held(library.path))
    assert {(MACHINE_CODE, number) for number in ASKED} <= wanted
    sources = {path.name for path in (ROOT / "kernels" / "csrc").glob("*.cu")}
    for_hopper_alone = [codes for codes in found if codes == {(MACHINE_CODE, 90)}]
    assert len(for_hopper_alone) == len({name for name in sources if "wgmma" in name}) == 1
    assert [codes for codes in found if codes not in (wanted, *for_hopper_alone)] == []
    assert len(found) == len(sources), "a source was left out of CMakeLists.txt"
