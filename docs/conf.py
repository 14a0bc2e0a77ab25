"""How `make docs` turns the Markdown of this repository into a site.

The source folder is the whole checkout, so that links between README.md, docs/ and the rest are links on the site
too, and are checked.  The order of the pages is written once, as lists in docs/index.md, which a code-hosting site
shows as they are; here, every section of that page becomes a part of the sidebar.  Nothing is loaded from another host.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "Perago"
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = [
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/RESULTS.md", "examples/README.md",
    "docs/**.md",
]  # fmt: skip
# Folders that are never walked into.
exclude_patterns = [".*", "build", "dist", "src", "tests", "dev", "**/.perago"]

# Anchors as code-hosting sites make them.
myst_heading_anchors = 4
highlight_language = "none"
# Output with a cut (…) is no valid JSON, and is shown without colours.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "Perago"
html_copy_source = False
html_show_copyright = False
# Where the site's own address leads: to docs/index.
html_extra_path = ["_site"]

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
ENTRY = re.compile(r"^(?:\d+\.|-) \[[^]]+\]\(([^)#]+\.md)\)", re.MULTILINE)


def sidebar(app: Sphinx, docname: str, source: list[str]) -> None:
    """Adds the tables of contents, which no reader of the Markdown is to see."""
    if docname == root_doc:
        source[0] += contents(source[0])
    elif docname == "docs/decisions/README":
        source[0] += "\n```{toctree}\n:glob:\n\n0*\n```\n"


def contents(index: str) -> str:
    """A hidden toctree for each section of the index that lists pages."""
    text = ""
    for title, section in zip(*[iter(SECTION.split(index)[1:])] * 2, strict=True):
        pages = [page_of(link) for link in ENTRY.findall(section)]
        if pages:
            text += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""])
    return text


def page_of(link: str) -> str:
    """A link of docs/index.md as the absolute name of a page."""
    path = ROOT.joinpath("docs", link).resolve().relative_to(ROOT)
    return f"/{PurePosixPath(path).with_suffix('')}"


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("source-read", sidebar)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
