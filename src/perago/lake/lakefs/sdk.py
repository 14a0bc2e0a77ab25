"""lakeFS's official SDK as Perago uses it: a copy of its own, without the checks of arguments.

The SDK makes a checker for each of its methods when it is imported, which takes two thirds of the time that the import
takes, and every executor and every command would wait for it.  Perago sends what its own types allow, and the server
checks the rest.  The copy is Perago's alone: a body that imports `lakefs_sdk` gets the SDK as it is.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pydantic.v1
from pydantic.v1 import class_validators

_PACKAGE = "lakefs_sdk"
_KNOWN_VALIDATORS: set[str] = getattr(class_validators, "_FUNCS", set())


def _imported() -> ModuleType:
    with _without_checkers(), _apart():
        return importlib.import_module(_PACKAGE)


@contextmanager
def _without_checkers() -> Iterator[None]:
    checked = pydantic.v1.validate_arguments
    pydantic.v1.validate_arguments = _as_it_is  # type: ignore[assignment]
    try:
        yield
    finally:
        pydantic.v1.validate_arguments = checked


def _as_it_is(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


@contextmanager
def _apart() -> Iterator[None]:
    """What is imported here is nobody else's, and what others have imported before stays theirs."""
    theirs, validators = _taken_out(), _forgotten_validators()
    try:
        yield
    finally:
        _taken_out()
        _forgotten_validators()
        sys.modules.update(theirs)
        _KNOWN_VALIDATORS.update(validators)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}


def _forgotten_validators() -> set[str]:
    """Pydantic takes a second copy of a model for a mistake, by the names of its validators."""
    names = {name for name in _KNOWN_VALIDATORS if name.startswith(f"{_PACKAGE}.")}
    _KNOWN_VALIDATORS.difference_update(names)
    return names


sdk: Any = _imported()
"""The SDK, whose generated models say less to a type checker than nothing."""
