"""`make docs`: the site builds without a warning, has every public name and no foreign host; an error in a page stops it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perago
import perago.testing
import perago.workflow
from tests.support.docs.pages import ROOT

pytestmark = pytest.mark.slow
PUBLIC = (perago, perago.testing, perago.workflow)
SOURCES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "bench",
    "docs",
    "examples",
)


def build(checkout: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Run the Makefile's recipe on the pages of a checkout."""
    recipe = re.search(r"^\t@\$\(BIN\)/sphinx-build (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    words = (
        recipe[1].replace("build/doctrees", str(out / "doctrees")).replace("build/site", str(out / "site"))
    )
    command = [sys.executable, "-m", "sphinx", *words.split()]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = {
        str(page.relative_to(tmp_path / "site")): page.read_text() for page in tmp_path.glob("site/**/*.html")
    }
    assert {"index.html", "docs/index.html", "docs/quick-start.html", "README.html"} <= set(pages)
    public = [f"{module.__name__}.{name}" for module in PUBLIC for name in module.__all__]
    assert [name for name in public if f'id="{name}"' not in pages["docs/api.html"]] == []
    loaded = re.compile(
        r'<(?:script|img|link|iframe)[^>]*?(?:src|href)="((?:https?:)?//[^"]*)"|@import|url\(["\']?http'
    )
    assert {name: found.group() for name, text in pages.items() if (found := loaded.search(text))} == {}
    styles = "".join(style.read_text() for style in tmp_path.glob("site/_static/**/*.css"))
    assert re.findall(r"(?:@import|url\(\s*[\"']?)\s*(?:https?:)?//\S+", styles) == []


def test_the_site_has_the_pages_in_the_order_of_the_index(tmp_path: Path) -> None:
    listed = re.findall(r"^\d+\. \[[^]]+\]\(([^)]+)\)", (ROOT / "docs/index.md").read_text(), re.MULTILINE)

    assert listed == [
        "why.md",
        "quick-start.md",
        "workflows.md",
        "transactions.md",
        "only-what-changed.md",
        "spark-tasks.md",
        "testing-tasks.md",
        "secrets.md",
        "two-teams.md",
        "production.md",
        "settings.md",
        "notifications.md",
        "storage.md",
        "reading-tables.md",
        "provenance.md",
        "lineage.md",
        "notebooks.md",
        "troubleshooting.md",
        "failure-matrix.md",
        "spark-cluster.md",
        "scaling.md",
        "publication.md",
        "decisions/README.md",
    ]


def test_a_broken_link_a_broken_anchor_and_a_page_that_nothing_lists_stop_the_build(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, checkout / name)
    (checkout / "docs/lost.md").write_text("# Lost\n\n[a](gone.md) and [b](commands.md#nowhere)\n")

    done = build(checkout, tmp_path)

    assert done.returncode != 0
    for word in ("gone.md", "nowhere", "lost.md: WARNING: document isn't included in any toctree"):
        assert word in done.stderr
