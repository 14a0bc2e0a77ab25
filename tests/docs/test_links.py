"""Links between pages lead somewhere, as a code-hosting site resolves them: files by path, headings by their usual anchor.

The fast half of the check; `make docs` makes the other (tests/docs/test_site.py).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.docs.pages import ROOT

MARKDOWN = MarkdownIt("commonmark").enable("table")


def pages() -> list[Path]:
    """Every Markdown file that git has, or would take."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listing, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).exists()]


def inline(page: Path) -> Iterator[tuple[str, Token]]:
    """The tokens within paragraphs, headings and cells, each after the kind of block that it is in."""
    opened = ""
    for token in MARKDOWN.parse(page.read_text()):
        opened = token.type if token.type.endswith("_open") else opened
        if token.type == "inline":
            yield opened, token


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings; the second heading of a name gets `-1`."""
    found: list[str] = []
    for opened, token in inline(page):
        if opened == "heading_open":
            text = "".join(part.content for part in token.children or ())
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


def links(page: Path) -> Iterator[str]:
    for _, token in inline(page):
        for part in token.children or ():
            target = part.attrGet("href") or part.attrGet("src")
            if target is not None:
                yield str(target)


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere in this checkout."""
    result = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if re.match(r"[a-z]+:", link):
            continue
        wrong_anchor = anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(target)
        if not target.exists() or wrong_anchor:
            result.append(link)
    return result


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_of_a_page_is_broken(page: Path) -> None:
    assert broken(page) == []


def test_broken_links_and_anchors_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A title\n\n## `perago run`, again\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#perago-run-again) [c](there.md#twice-1) [d](https://example.com/x.md)\n"
        "[e](gone.md) [f](there.md#twice-2) ![g](gone.png) [h](#nowhere)\n"
    )

    assert broken(page) == ["gone.md", "there.md#twice-2", "gone.png", "#nowhere"]
