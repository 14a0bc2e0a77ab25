"""lakeFS's official SDK as Perago uses it: the parts that it calls, without the checks of arguments.

The SDK makes a model of everything that its API knows, and a checker for each of its methods, when it is imported: half a
second for which every executor and every command would wait.  Perago sends what its own types allow, and the server checks
the rest.  A body that imports `lakefs_sdk` gets the SDK as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pydantic.v1
from pydantic.v1 import class_validators

from perago.sdk_import import classes_of, import_parts

_PACKAGE = "lakefs_sdk"
_APIS = (
    *("branches", "commits", "config", "experimental", "objects", "refs", "repositories", "staging"),
    "tags",
)
_KNOWN_VALIDATORS: set[str] = getattr(class_validators, "_FUNCS", set())


def _imported() -> Any:
    modules = [f"{_PACKAGE}.api.{name}_api" for name in _APIS]
    others = [f"{_PACKAGE}.{name}" for name in ("exceptions", "configuration", "api_client")]
    with _without_checkers(), _with_validators_of_its_own():
        bare = (_PACKAGE, f"{_PACKAGE}.api", f"{_PACKAGE}.models")
        return classes_of(import_parts(_PACKAGE, [*modules, *others], without_init=bare).values())


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
def _with_validators_of_its_own() -> Iterator[None]:
    """Pydantic takes a second copy of a model for a mistake, by the names of its validators."""
    theirs = _forgotten_validators()
    try:
        yield
    finally:
        _forgotten_validators()
        _KNOWN_VALIDATORS.update(theirs)


def _forgotten_validators() -> set[str]:
    names = {name for name in _KNOWN_VALIDATORS if name.startswith(f"{_PACKAGE}.")}
    _KNOWN_VALIDATORS.difference_update(names)
    return names


sdk: Any = _imported()
"""The SDK's classes, whose generated models say less to a type checker than nothing."""
