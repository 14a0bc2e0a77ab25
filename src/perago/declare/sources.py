"""Tells which source files are the author's, and reads which modules they may import, without importing anything."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path


def is_user_file(file: str | None) -> bool:
    """Return whether a file is the author's, i.e. not part of Perago, the standard library or an installed package."""
    if file is None or file.startswith("<"):
        return False
    parts = Path(file).parts
    outside = Path(importlib.__file__).parents[1], Path(__file__).parents[1]
    return "site-packages" not in parts and not any(Path(file).is_relative_to(folder) for folder in outside)


@lru_cache(maxsize=4096)
def imports_of_file(file: str, package: str, changed: int, size: int) -> tuple[str, ...]:
    """Return the names that a file may import, as dotted names. `changed` and `size` tell its versions apart."""
    try:
        return imports_of_source(Path(file).read_bytes(), package)
    except OSError:
        return ()


def imports_of_source(source: bytes, package: str) -> tuple[str, ...]:
    """Return the names that a source may import, also inside functions, as dotted names.

    `package` is the package of the source's module, for relative imports.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(dict.fromkeys(_names(tree, package)))


def _names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):
                relative = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(relative, package) if node.level else relative
                # What is imported may be a module itself.
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
