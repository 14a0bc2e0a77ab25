"""Our own sources, read by tests that look for what they must not hold; each is parsed once for all of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import perago

OUR_FILES = f"{Path(perago.__file__).parent}/"
"""The installed package's folder, as tracebacks name it. A checkout may be called perago, too."""


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a source; not to be changed."""
    return ast.parse(path.read_text())
