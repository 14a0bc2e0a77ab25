"""Values of a workflow's JSON, in which expressions are unknown before the workflow runs.

An unknown value is `UNKNOWN` and never validated.  `${workflow.input.…}` is known if the input is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from perago.workflow.model.expressions import EXPRESSION, LENGTH, Part, expressions_in, understood


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final[Any] = _Unknown()
"""A value that is known only when the workflow runs; a given input may contain it too."""

Path = tuple[str | int, ...]


def known(value: Any, given: Mapping[str, Any] | None) -> Any:
    """Return the value, with UNKNOWN for every expression that `given` does not answer."""
    if isinstance(value, str):
        return _known_text(value, given)
    if isinstance(value, Mapping):
        return {key: known(item, given) for key, item in value.items()}
    if isinstance(value, list):
        return [known(item, given) for item in value]
    return value


def whole(value: Any) -> str | None:
    """Return the expression if the value is exactly one, else None."""
    found = EXPRESSION.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else found[1]


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield every string in a value that contains an expression, with its path."""
    if isinstance(value, str):
        if any(True for _ in expressions_in(value)):
            yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(item, (*path, str(key)))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from texts(item, (*path, number))


def from_input(expression: str, given: Mapping[str, Any] | None) -> Any:
    """Return the value of `${workflow.input.…}`, which may be None.  UNKNOWN for other expressions, or without an input."""
    parts, end = understood(expression)
    if given is None or end < len(expression) or parts[:2] != ("workflow", "input"):
        return UNKNOWN
    value: Any = given
    for part in parts[2:]:
        value = _inner(value, part)
    return value


def has_unknown(value: Any) -> bool:
    """Return whether any part of the value is UNKNOWN."""
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return value is UNKNOWN


def without_unknown(value: Any) -> Any:
    """Return the value without UNKNOWN fields; a list that contains one is UNKNOWN as a whole."""
    if isinstance(value, Mapping):
        kept = {key: without_unknown(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not UNKNOWN}
    if isinstance(value, list):
        return UNKNOWN if has_unknown(value) else value
    return value


def at(value: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    for part in path:
        value = _inner(value, part)
    return value


def shown(path: Path) -> str:
    """Return a path in dotted notation."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _known_text(text: str, given: Mapping[str, Any] | None) -> Any:
    expression = whole(text)
    if expression is not None:
        value = from_input(expression, given)
        # A missing input is reported by the check of the expression that reads it.
        return UNKNOWN if value is None else value
    if any(True for _ in expressions_in(text)):
        return UNKNOWN
    return text.replace("$${", "${")


def _inner(value: Any, part: Part) -> Any:
    if value is UNKNOWN or part == LENGTH:
        return UNKNOWN
    if isinstance(part, int):
        return value[part] if isinstance(value, list) and -len(value) <= part < len(value) else None
    return value.get(part) if isinstance(value, Mapping) else None
