"""How `make docs` turns the Markdown of this repository into a site.

The source folder is the whole checkout, so that links between README.md, docs/ and the rest are links on the site
too, and are checked.  The order of the pages is written once, as lists in docs/index.md, which a code-hosting site
shows as they are; here, every section of that page becomes a part of the sidebar.  Nothing is loaded from another host.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

ROOT = Path(__file__).parents[1]

project = "Perago"
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
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

# The API reference: docstrings mark code as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {
    "exclude-members": "model_config, model_post_init, model_computed_fields, model_fields"
}

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


def google_style(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Reads `Args:` sections. Napoleon itself would take "The status: …" of an attribute for its type."""
    if what not in {"attribute", "data", "property"}:
        lines[:] = str(GoogleDocstring(lines, Config(), app, what, name, found, options)).splitlines()


def short_signature(
    app: Sphinx, what: str, name: str, found: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Leaves types out of the signatures of models and dataclasses, whose fields are listed with their types below."""
    if what != "class" or not (hasattr(found, "model_fields") or is_dataclass(found)):
        return None
    shown = [
        one.name
        if one.default is one.empty or "factory" in repr(one.default)
        else f"{one.name}={one.default!r}"
        for one in inspect.signature(found).parameters.values()
    ]
    return f"({', '.join(shown)})", None


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("source-read", sidebar)
    app.connect("autodoc-process-docstring", google_style)
    app.connect("autodoc-process-signature", short_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
