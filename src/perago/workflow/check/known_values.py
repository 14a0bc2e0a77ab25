"""The part of a step's input that is known before the workflow starts: literals, and values from the workflow's input.

Everything uncertain is `UNKNOWN` (outputs of other steps, text around an expression, paths that only Conductor reads).  A
value that is missing in the workflow's input is null, as in both orchestrators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_WHOLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = r"[^.\[\]()\s'\"*@$?{}]+"
_PATH = re.compile(rf"workflow\.input((?:\.{_NAME}|\[\d+\]|\['[^']*'\]|\[\"[^\"]*\"\])*)")
_PART = re.compile(rf"\.({_NAME})|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_READ = re.compile(rf"\$\{{workflow\.input(?:\.({_NAME})|\['([^']*)'\]|\[\"([^\"]*)\"\])?")

Path = tuple[str | int, ...]


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""A value that is known only when the workflow runs."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The expression that a value comes from; `lacking` is the path that the input does not have, or None."""

    expression: str
    lacking: str | None = None


@dataclass(frozen=True, slots=True)
class KnownInput:
    """The known part of a step's input, and the origins of its values by path."""

    value: Any
    origins: dict[Path, Origin] = field(default_factory=dict)

    def origin_of(self, path: Path) -> tuple[Path, Origin] | None:
        """Return the origin of the value at `path`, or of an enclosing value, with that value's path."""
        for length in range(len(path), -1, -1):
            found = self.origins.get(path[:length])
            if found is not None:
                return path[:length], found
        return None


def known_input(parameters: Mapping[str, Any], payload: Mapping[str, Any]) -> KnownInput:
    """Return a step's `inputParameters` with the workflow's input filled in."""
    origins: dict[Path, Origin] = {}
    return KnownInput(_fill(parameters, payload, (), origins), origins)


def inputs_read(node: Any) -> set[str | None]:
    """Return the input names that expressions anywhere in a definition read; None among them: one reads the whole input."""
    return set(_reads(node))


def _reads(node: Any) -> Iterator[str | None]:
    if isinstance(node, str):
        for match in _READ.finditer(node):
            yield next((name for name in match.groups() if name), None)
    elif isinstance(node, Mapping | list):
        for item in node.values() if isinstance(node, Mapping) else node:
            yield from _reads(item)


def _fill(value: Any, payload: Mapping[str, Any], path: Path, origins: dict[Path, Origin]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill(item, payload, (*path, key), origins) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, payload, (*path, number), origins) for number, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    whole = _WHOLE.fullmatch(value)
    read = _PATH.fullmatch(whole[1]) if whole else None
    if read is None:
        return UNKNOWN
    found, lacking = _read(payload, read[1])
    origins[path] = Origin(value, lacking)
    return found


def _read(payload: Any, path: str) -> tuple[Any, str | None]:
    value, walked = payload, ""
    for match in _PART.finditer(path):
        part = next(group for group in match.groups() if group is not None)
        key: Any = part if match[2] is None else int(part)
        walked += match[0]
        there = (
            key in value if isinstance(value, Mapping) else isinstance(value, list) and _inside(key, value)
        )
        if not there:
            return None, walked.lstrip(".")
        value = value[key]
    return value, None


def _inside(key: Any, items: list[Any]) -> bool:
    return isinstance(key, int) and key < len(items)
