"""Computes the digest of a task's own code, by which a task that skips unchanged work notices that its code has changed.

    covered       the task's module, and the modules below its project root that it imports, also inside functions, and
                  those that these import
    not covered   installed packages, data files, modules that are imported by a computed name

The project root is the nearest folder with `pyproject.toml` or `.git`, or else the file's own folder.  The digest depends
on module names and sources only, so it is the same on every machine, wherever the project is.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from perago.declare.sources import imports_of_source, is_user_file

_ROOT_MARKS = ("pyproject.toml", ".git")
_known: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()


def code_digest(fn: Callable[..., Any]) -> str:
    """Return the digest of a function's module and of the project's modules that it imports, or "" without sources.

    It is computed once in a process, early, because the process goes on running the code that it has loaded.
    """
    fn = inspect.unwrap(fn)
    if fn not in _known:
        _known[fn] = _digest(fn)
    return _known[fn]


def _digest(fn: Callable[..., Any]) -> str:
    module = sys.modules.get(fn.__module__)
    code = getattr(fn, "__code__", None)
    spec = getattr(module, "__spec__", None)
    source = _source(spec) if spec is not None else None
    if source is None and code is not None:
        # A script has no spec, and a notebook's cell no file.
        with suppress(OSError):
            source = Path(code.co_filename).read_bytes()
    if source is None or code is None:
        return ""
    root = project_root(Path(code.co_filename))
    package = str(getattr(module, "__package__", "") or "")
    digest = sha256()
    # The module itself without a name: a file has another one than the same file in a package.
    for name, content in sorted({"": source, **dict(_imported(source, package, root))}.items()):
        digest.update(b"%s %d\n" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()


def project_root(file: Path) -> Path:
    """Return the nearest folder above a file that is a project's root, or else the file's own folder."""
    folder = file.resolve().parent
    for place in (folder, *folder.parents):
        if any((place / mark).exists() for mark in _ROOT_MARKS):
            return place
    return folder


def _imported(source: bytes, package: str, root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and sources of the modules below the root that a source imports, directly or not."""
    seen: set[str] = set()
    pending = [part for name in imports_of_source(source, package) for part in _with_packages(name)]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = _find(name)
        if spec is None or not _is_below(spec, root):
            continue
        if (found := _source(spec)) is not None:
            yield name, found
            inside = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
            pending += [part for one in imports_of_source(found, inside) for part in _with_packages(one)]


def _with_packages(name: str) -> list[str]:
    """Return a dotted name after the names of the packages that contain it: importing it runs them, too."""
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _find(name: str) -> ModuleSpec | None:
    """Return a module's spec without importing anything, or None if there is no such module."""
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    parent, _, last = name.rpartition(".")
    with suppress(ImportError, ValueError, AttributeError):
        if not parent:
            return importlib.util.find_spec(name)
        package = _find(parent)
        if package is not None and package.submodule_search_locations is not None:
            # By its last name: `find_spec` of a dotted name would import the packages.
            return PathFinder.find_spec(last, list(package.submodule_search_locations))
    return None


def _is_below(spec: ModuleSpec, root: Path) -> bool:
    if spec.origin is None or not spec.has_location:
        # A namespace package has no file. Its modules have.
        return False
    return is_user_file(spec.origin) and Path(spec.origin).resolve().is_relative_to(root)


def _source(spec: ModuleSpec) -> bytes | None:
    """Return a module's source, or None if it has none, such as a compiled extension."""
    origin, get_data = spec.origin, getattr(spec.loader, "get_data", None)
    if origin is None or not origin.endswith(".py") or get_data is None:
        return None
    with suppress(OSError):
        found: bytes = get_data(origin)
        return found
    return None
