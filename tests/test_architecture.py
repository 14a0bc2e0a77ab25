"""ARCHITECTURE.md is how newcomers find their way, so everything it names is there and no room is missing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "perago"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
BASES = (ROOT, SRC, SRC / "runtime", SRC / "orchestrator" / "local")


def test_every_path_that_is_named_exists() -> None:
    named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:/|\.(?:py|md|json)))`", TEXT)

    assert len(named) > 30
    assert [path for path in named if not any((base / path).exists() for base in BASES)] == []


def test_every_folder_of_the_sources_is_in_the_tree() -> None:
    tree = re.search(r"```\n(.*?)```", TEXT, re.DOTALL)
    folders = [path.parent.name for path in SRC.rglob("__init__.py") if path.parent != SRC]

    assert tree is not None
    assert [name for name in folders if f" {name}/" not in tree[1]] == []
