"""Our own sources, read by tests that look for what they must not hold; each is parsed once for all of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a source; not to be changed."""
    return ast.parse(path.read_text())
