"""lakeFS's official SDK as Perago uses it: only the parts that it calls, without argument validation.

On import, the SDK builds a model of its whole API and a validator for each method: half a second for which every executor
and every command would wait.  Perago sends what its own types allow, and the server checks the rest.  A body that imports
`lakefs_sdk` gets the unmodified SDK.
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


def _import_sdk() -> Any:
    modules = [f"{_PACKAGE}.api.{name}_api" for name in _APIS]
    others = [f"{_PACKAGE}.{name}" for name in ("exceptions", "configuration", "api_client")]
    with _without_argument_validation(), _with_separate_validators():
        bare = (_PACKAGE, f"{_PACKAGE}.api", f"{_PACKAGE}.models")
        return classes_of(import_parts(_PACKAGE, [*modules, *others], without_init=bare).values())


@contextmanager
def _without_argument_validation() -> Iterator[None]:
    original = pydantic.v1.validate_arguments
    pydantic.v1.validate_arguments = _unchanged  # type: ignore[assignment]
    try:
        yield
    finally:
        pydantic.v1.validate_arguments = original


def _unchanged(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


@contextmanager
def _with_separate_validators() -> Iterator[None]:
    """Hide the SDK's registered validators: pydantic rejects a second copy of a model by its validators' names."""
    registered = _unregister_validators()
    try:
        yield
    finally:
        _unregister_validators()
        _KNOWN_VALIDATORS.update(registered)


def _unregister_validators() -> set[str]:
    names = {name for name in _KNOWN_VALIDATORS if name.startswith(f"{_PACKAGE}.")}
    _KNOWN_VALIDATORS.difference_update(names)
    return names


sdk: Any = _import_sdk()
"""The SDK's classes; `Any`, because their generated types mislead a type checker."""
