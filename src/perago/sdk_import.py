"""Parts of an SDK without the rest of it: a copy that is Perago's alone.

A generated SDK imports all of itself as soon as one part is imported, which takes longer than everything else that a process
of a worker does before its first attempt.  Here the packages that are named do not run their `__init__`, so only what the
wanted modules themselves import comes along.

Whoever imports the SDK elsewhere, a body for one, gets all of it: this copy is in `sys.modules` only while it is imported.
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
    """These modules, and those that they import from the package, by name."""
    with _apart(package):
        for name in without_init:
            sys.modules[name] = _bare(name)
        for name in modules:
            importlib.import_module(name)
        return {name: module for name, module in sys.modules.items() if _is_of(name, package)}


def classes_of(modules: Iterable[ModuleType]) -> Any:
    """All classes that are defined in these modules, by name."""
    found = SimpleNamespace()
    for module in modules:
        for name, value in inspect.getmembers(module, inspect.isclass):
            if value.__module__ == module.__name__:
                setattr(found, name, value)
    return found


@contextmanager
def _apart(package: str) -> Iterator[None]:
    """What is imported here is nobody else's, and what others have imported before stays theirs."""
    theirs = _taken_out(package)
    try:
        yield
    finally:
        _taken_out(package)
        sys.modules.update(theirs)


def _taken_out(package: str) -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_of(name, package)}


def _is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _bare(name: str) -> ModuleType:
    """The package as a place to import from; what else is asked of it later, the whole one answers."""
    parent, _, last = name.rpartition(".")
    if parent:
        folders = [os.path.join(folder, last) for folder in importlib.import_module(parent).__path__]
    else:
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    bare = ModuleType(name)
    bare.__path__ = folders

    def from_the_whole(attribute: str) -> Any:
        # While it is imported, what is not there is a module to be found by its path.
        if attribute.startswith("__") or sys.modules.get(name) is bare:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(importlib.import_module(name), attribute)

    bare.__getattr__ = from_the_whole  # type: ignore[method-assign]
    return bare
