"""Imports parts of an SDK without the rest, as a private copy for Perago.

A generated SDK imports all of itself as soon as one part is imported, which takes longer than everything else that a
worker process does before its first attempt.  Here the named packages do not run their `__init__`, so only the
wanted modules and their own imports are loaded.

Other code that imports the SDK, such as a body, gets all of it: this copy is in `sys.modules` only during the import.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any


def import_parts(
    package: str, modules: Sequence[str], *, without_init: Sequence[str]
) -> Mapping[str, ModuleType]:
    """Import `modules` and return them by name, with the modules of the package that they import."""
    with _isolated(package):
        for name in without_init:
            sys.modules[name] = _bare_package(name)
        for name in modules:
            importlib.import_module(name)
        return {name: module for name, module in sys.modules.items() if _is_of(name, package)}


def classes_of(modules: Iterable[ModuleType]) -> Any:
    """Return a namespace of all classes that are defined in these modules."""
    found = SimpleNamespace()
    for module in modules:
        for name, value in inspect.getmembers(module, inspect.isclass):
            if value.__module__ == module.__name__:
                setattr(found, name, value)
    return found


@contextmanager
def _isolated(package: str) -> Iterator[None]:
    """Hide the package in `sys.modules` for the block, and restore afterwards what other code had imported."""
    theirs = _pop_modules(package)
    try:
        yield
    finally:
        _pop_modules(package)
        sys.modules.update(theirs)


def _pop_modules(package: str) -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_of(name, package)}


def _is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _bare_package(name: str) -> ModuleType:
    """Return the package as a place to import from; later attribute look-ups are answered by the full package."""
    parent, _, last = name.rpartition(".")
    if parent:
        folders = [os.path.join(folder, last) for folder in importlib.import_module(parent).__path__]
    else:
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    bare = ModuleType(name)
    bare.__path__ = folders

    def from_full_package(attribute: str) -> Any:
        # During the import, a missing attribute is a submodule, which the import system finds by its path.
        if attribute.startswith("__") or sys.modules.get(name) is bare:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(importlib.import_module(name), attribute)

    bare.__getattr__ = from_full_package  # type: ignore[method-assign]
    return bare
