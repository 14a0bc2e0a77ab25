"""Values of a workflow's JSON, in which an expression stands for something that is not known before the workflow runs.

The rule: what may be anything is `UNKNOWN` and never validated.  `${workflow.input.…}` is known where the input is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from perago.workflow.model.expressions import EXPRESSION, LENGTH, Part, expressions_in, understood


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final[Any] = _Unknown()
"""Stands for a value that is known only when the workflow runs; an input that is given may hold it too."""

Path = tuple[str | int, ...]


def known(value: Any, given: Mapping[str, Any] | None) -> Any:
    """The value, with UNKNOWN for everything that comes from an expression which `given` does not answer."""
    if isinstance(value, str):
        return _known_text(value, given)
    if isinstance(value, Mapping):
        return {key: known(item, given) for key, item in value.items()}
    if isinstance(value, list):
        return [known(item, given) for item in value]
    return value


def whole(value: Any) -> str | None:
    """The expression that a value is, if it is nothing else."""
    found = EXPRESSION.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else found[1]


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in a value that holds an expression, with where it stands."""
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
    """What `${workflow.input.…}` gives, None included; UNKNOWN for every other expression, and without an input."""
    parts, end = understood(expression)
    if given is None or end < len(expression) or parts[:2] != ("workflow", "input"):
        return UNKNOWN
    value: Any = given
    for part in parts[2:]:
        value = _inner(value, part)
    return value


def has_unknown(value: Any) -> bool:
    """Whether a part of the value is UNKNOWN."""
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return value is UNKNOWN


def without_unknown(value: Any) -> Any:
    """The value without the fields that are UNKNOWN; a list that holds one is unknown as a whole."""
    if isinstance(value, Mapping):
        kept = {key: without_unknown(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not UNKNOWN}
    if isinstance(value, list):
        return UNKNOWN if has_unknown(value) else value
    return value


def at(value: Any, path: Path) -> Any:
    """What stands at a path; None if nothing."""
    for part in path:
        value = _inner(value, part)
    return value


def shown(path: Path) -> str:
    """A path as people write it."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _known_text(text: str, given: Mapping[str, Any] | None) -> Any:
    expression = whole(text)
    if expression is not None:
        value = from_input(expression, given)
        # What the input lacks is told where it is read.
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
