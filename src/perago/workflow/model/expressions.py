"""The grammar of `${…}` in a workflow's JSON, and values in which some expressions are unknown before the workflow runs.

    "${ref.output.path[0]}"     a path: names, indexes, quoted keys and a final `length()`
    "$${ref}"                   the text "${ref}", not an expression

Conductor accepts all of JsonPath.  `parse_path` rejects every other form, because the embedded orchestrator must not guess
at run time.  `understood` instead returns the supported part at the start of a path, because a check must not reject what
Conductor can run.

`${workflow.input.…}` is known if the input is given.  Everything else is `UNKNOWN` until the workflow runs: step outputs,
text with an expression in it, and paths that only Conductor understands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

EXPRESSION = re.compile(r"(?<!\$)\$\{([^{}]*)\}")
TASK_ID = "CPEWF_TASK_ID"
LENGTH = ("length()",)

_NESTED = re.compile(r"(?<!\$)\$\{[^{}]*\{")
_NAME = r"[^.\[\]()\s'\"*@$?{}]+"
_KEY = r"\[(?P<quote>['\"])(?P<key>[^'\"]*)(?P=quote)\]"
_HEAD = re.compile(_NAME)
_PART = re.compile(rf"\.(?P<length>length\(\))$|\.(?P<name>{_NAME})|\[(?P<index>-?\d+)\]|{_KEY}")
# The start of any expression that may read the workflow's input, even inside another expression.
_INPUT_READ = re.compile(rf"\$\{{workflow\.input(?:\.(?P<name>{_NAME})|{_KEY})?")
_REFUSED_PREFIXES = ("workflow.secrets.", "workflow.env.")

Part = str | int | tuple[str]
Path = tuple[str | int, ...]


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final[Any] = _Unknown()
"""A placeholder for a value that is known only once the workflow runs.  A given input may contain it too."""


def expressions_in(value: Any) -> Iterator[str]:
    """Yield every expression in a value, at any depth.

    Text with a nested expression is yielded as a whole, so that the parser rejects it.
    """
    for text in _strings(value):
        if _NESTED.search(text):
            yield text
        else:
            yield from (match[1] for match in EXPRESSION.finditer(text))


def has_expression(value: Any) -> bool:
    """Return whether a value contains an expression."""
    return any(True for _ in expressions_in(value))


def whole(value: Any) -> str | None:
    """Return the expression if the value consists of exactly one expression, otherwise None."""
    found = EXPRESSION.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else found[1]


def source_of(expression: str) -> str | None:
    """Return the task reference that an expression reads from; None for `workflow` and the task id."""
    head = str(parse_path(expression)[0])
    return None if head in {"workflow", TASK_ID} else head


def inputs_read(value: Any) -> set[str | None]:
    """Return the names of the workflow inputs that a value may read, including None if it may read the whole input."""
    found = (match for text in _strings(value) for match in _INPUT_READ.finditer(text))
    return {match["name"] or match["key"] or None for match in found}


@lru_cache(maxsize=4096)
def parse_path(path: str) -> tuple[Part, ...]:
    """Return the parts of a path.  Raises `ValueError` if its form is not supported."""
    if path.startswith(_REFUSED_PREFIXES):
        raise ValueError(f"${{{path}}}: secrets and environment variables are not supported")
    parts, end = understood(path)
    if not parts:
        raise ValueError(f"${{{path}}} is not a supported path")
    if end < len(path):
        raise ValueError(f"${{{path}}} is not a supported path (names, indexes and quoted keys are)")
    return parts


def understood(path: str) -> tuple[tuple[Part, ...], int]:
    """Return the parts of a path up to the first unsupported one, and the position where they end."""
    found = list(_parts(path))
    return tuple(part for part, _ in found), found[-1][1] if found else 0


def format_path(parts: tuple[Part, ...]) -> str:
    """Return a path in dotted notation, as an author writes it."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part if isinstance(part, str) else part[0]}"
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Origin:
    """The expression that a value was read from.  `lacking` is the path that is missing from the input, or None."""

    expression: str
    lacking: str | None = None


@dataclass(frozen=True, slots=True)
class KnownInput:
    """A value with the workflow's input filled in.  All other expressions are UNKNOWN.

    `origins` contains the origin of each part that was filled in, keyed by path.
    """

    value: Any
    origins: dict[Path, Origin] = field(default_factory=dict)

    def origin_of(self, path: Path) -> tuple[Path, Origin] | None:
        """Return the origin of the value at `path`, or of the nearest enclosing value, and that value's path."""
        for length in range(len(path), -1, -1):
            found = self.origins.get(path[:length])
            if found is not None:
                return path[:length], found
        return None


def known_input(value: Any, given: Mapping[str, Any] | None) -> KnownInput:
    """Return a value with the workflow's input filled in.  Missing inputs are null, as in both orchestrators."""
    origins: dict[Path, Origin] = {}
    return KnownInput(_fill(value, given, (), origins, null=None), origins)


def known(value: Any, given: Mapping[str, Any] | None) -> Any:
    """Return a value with the workflow's input filled in.  Inputs that are null or missing are UNKNOWN.

    Missing inputs are reported when the expressions that read them are checked.
    """
    return _fill(value, given, (), {}, null=UNKNOWN)


def from_input(expression: str, given: Mapping[str, Any] | None) -> Any:
    """Return the value of `${workflow.input.…}`, which may be None.

    Returns UNKNOWN for other expressions, or if the input is unknown.
    """
    return _read(expression, given)[0]


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield every string in a value that contains an expression, with its path."""
    if isinstance(value, str):
        if has_expression(value):
            yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(item, (*path, str(key)))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from texts(item, (*path, number))


def has_unknown(value: Any) -> bool:
    """Return whether any part of the value is UNKNOWN."""
    if isinstance(value, Mapping | list):
        return any(map(has_unknown, value.values() if isinstance(value, Mapping) else value))
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
    """Return the value at a path: None if there is none, UNKNOWN if it is inside an unknown value."""
    for part in path:
        if value is UNKNOWN:
            break
        value = value[part] if _has(value, part) else None
    return value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def _parts(path: str) -> Iterator[tuple[Part, int]]:
    """Yield each supported part at the start of a path, with the position where it ends."""
    head = _HEAD.match(path)
    if head is None:
        return
    end = head.end()
    yield head[0], end
    while (match := _PART.match(path, end)) is not None:
        end = match.end()
        if match["length"]:
            yield LENGTH, end
        elif match["index"]:
            yield int(match["index"]), end
        else:
            yield match["name"] if match["name"] is not None else match["key"], end


def _fill(
    value: Any, given: Mapping[str, Any] | None, path: Path, origins: dict[Path, Origin], *, null: Any
) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill(item, given, (*path, key), origins, null=null) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, given, (*path, at), origins, null=null) for at, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    expression = whole(value)
    if expression is None:
        return UNKNOWN if has_expression(value) else value.replace("$${", "${")
    found, lacking = _read(expression, given)
    if found is not UNKNOWN:
        origins[path] = Origin(value, lacking)
    return null if found is None else found


def _read(expression: str, given: Mapping[str, Any] | None) -> tuple[Any, str | None]:
    """Return the value that an expression reads from the workflow's input, and the path missing from it, if any."""
    parts = list(_parts(expression))
    if given is None or [part for part, _ in parts[:2]] != ["workflow", "input"]:
        return UNKNOWN, None
    if parts[-1][1] < len(expression) or parts[-1][0] == LENGTH:
        return UNKNOWN, None
    value: Any = given
    for part, end in parts[2:]:
        if value is UNKNOWN:
            return UNKNOWN, None
        if not _has(value, part):
            return None, expression[parts[1][1] : end].lstrip(".")
        value = value[part]
    return value, None


def _has(value: Any, part: Part) -> bool:
    if isinstance(part, int):
        return isinstance(value, list) and -len(value) <= part < len(value)
    return isinstance(value, Mapping) and part in value
