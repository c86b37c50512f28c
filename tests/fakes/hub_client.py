"""huggingface_hub in this process, told to ask a fake hub and to wait for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import huggingface_hub.file_download
import pytest
from fake_hub import FakeHub, serving


@contextmanager
def hub_of(hub: FakeHub, home: Path) -> Iterator[FakeHub]:
    """Serves the hub and makes it the hub; no token of the user's is read."""
    with serving(hub), pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "ENDPOINT", hub.address)
        form = "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + form)
        patch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(home / "token"))
        patch.setattr(huggingface_hub.file_download, "time", SimpleNamespace(sleep=lambda _: None))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        huggingface_hub.close_session()
        try:
            yield hub
        finally:
            huggingface_hub.close_session()
