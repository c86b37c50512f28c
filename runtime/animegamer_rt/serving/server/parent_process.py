"""The process that the server belongs to, for `serve --parent`: a game or an editor that started it.

Knows one process id. The server looks once a round whether that process is still there.
"""

from __future__ import annotations

import os
import select
import sys

from animegamer_rt.errors import ConfigError

if sys.platform == "win32":
    import ctypes

    _SYNCHRONIZE, _ENDED = 0x0010_0000, 0


class ParentProcess:
    """One process. Raises ConfigError if there is no such process."""

    def __init__(self, pid: int) -> None:
        self._pid, self._descriptor, self._handle = pid, -1, 0
        try:
            if sys.platform == "win32":
                self._handle = ctypes.windll.kernel32.OpenProcess(_SYNCHRONIZE, False, pid)
                if not self._handle:
                    raise ProcessLookupError(0, "no such process")
            elif hasattr(os, "pidfd_open"):
                self._descriptor = os.pidfd_open(pid)
            else:
                os.kill(pid, 0)
        except PermissionError:  # another user's, which is there
            pass
        except (OSError, OverflowError) as error:
            found = getattr(error, "strerror", None) or str(error)
            do = "give the id of the process that starts the server"
            raise ConfigError("no process to belong to", where=f"--parent {pid}", found=found, do=do) from error

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        if sys.platform == "win32":
            return bool(ctypes.windll.kernel32.WaitForSingleObject(self._handle, 0) == _ENDED)
        if self._descriptor >= 0:  # readable once it has ended, also before anybody has asked for its exit code
            poller = select.poll()
            poller.register(self._descriptor, select.POLLIN)
            return bool(poller.poll(0))
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False
