"""Memory that this process uses. Knows operating systems, nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    class _Counters(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS of psapi.h."""

        _fields_ = [("cb", wintypes.DWORD), ("page_faults", wintypes.DWORD)] + [
            (name, ctypes.c_size_t) for name in ("peak", "resident", "a", "b", "c", "d", "page_file", "peak_page_file")
        ]

    def resident_mib() -> float | None:
        """Physical memory held now, in MiB; None where the system does not say."""
        counters = _Counters(cb=ctypes.sizeof(_Counters))
        process = ctypes.windll.kernel32.GetCurrentProcess
        process.restype = wintypes.HANDLE
        read = ctypes.windll.psapi.GetProcessMemoryInfo
        read.argtypes = (wintypes.HANDLE, ctypes.POINTER(_Counters), wintypes.DWORD)
        if not read(process(), ctypes.byref(counters), counters.cb):
            return None
        return round(counters.resident / 2**20, 1)

else:

    def resident_mib() -> float | None:
        """Physical memory held now, in MiB; None where the system does not say."""
        try:
            status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        kib = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
        return round(int(kib[0]) / 1024, 1) if kib else None
