"""A hook of mkdocs: pages outside docs/ join the site, and links to other files of the repository become text.

README is the first page. Links stay as GitHub follows them; mkdocs then checks those between pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "README.md": "index.md",
    **{
        name: name
        for name in (
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "benchmarks/README.md",
            "benchmarks/WIRE.md",
            "benchmarks/language/README.md",
            "client/PROTOCOL.md",
            "client/README.md",
            "client/GAMES.md",
            "client/conformance/README.md",
            "client/python/README.md",
            "engines/README.md",
            "kernels/README.md",
            "tests/golden/README.md",
        )
    },
}
"""Path in the repository -> page of the site."""
REFERENCE = {
    "reference/runtime.md": "# The runtime's API\n\n::: animegamer_rt\n",
    "reference/client.md": "# The client's API\n\n::: animegamer_client\n",
}
PICTURES = (".svg", ".png", ".jpg", ".gif")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside docs/, the pictures that any page shows, and the pages of the reference."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for page, text in REFERENCE.items():
        files.append(File.generated(config, page, content=text))
    known = {file.src_uri for file in files}
    for page in [uri for uri in known if uri.endswith(".md") and uri not in REFERENCE]:
        for _, _, target, _ in LINK.findall((ROOT / _source(page)).read_text(encoding="utf-8")):
            source = posixpath.normpath(posixpath.join(posixpath.dirname(_source(page)), target))
            if source.endswith(PICTURES) and _page(source) not in known:
                files.append(File.generated(config, _page(source), abs_src_path=str(ROOT / source)))
                known.add(_page(source))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead each link to the page of the site, or name the file of the repository that it leads to."""
    here = page.file.src_uri
    if here in REFERENCE:
        return markdown

    def follow(match: re.Match[str]) -> str:
        mark, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        source = posixpath.normpath(posixpath.join(posixpath.dirname(_source(here)), target))
        if not (ROOT / source).exists():
            raise PluginError(f"{_source(here)}: a link leads to {source}, which is not there")
        if files.get_file_from_path(_page(source)) is not None:
            return f"{mark}[{text}]({posixpath.relpath(_page(source), posixpath.dirname(here) or '.')}{anchor})"
        return text if source in text else f"{text} (`{source}`)"

    return LINK.sub(follow, markdown)


def _source(page: str) -> str:
    """The path in the repository of a page of the site."""
    return {page: source for source, page in OUTSIDE.items()}.get(page, f"docs/{page}")


def _page(source: str) -> str:
    """The place in the site of a file of the repository."""
    return OUTSIDE.get(source, source.removeprefix("docs/"))
