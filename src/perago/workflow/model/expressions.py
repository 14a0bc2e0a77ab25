"""The grammar of `${…}` in a workflow's JSON: finds expressions, and splits their paths into parts.

    "${ref.output.path[0]}"     a path: names, indexes, quoted keys and a last `length()`
    "$${ref}"                   the text "${ref}", not an expression

Conductor accepts all of JsonPath.  `parse_path` refuses every other form, since the embedded orchestrator must not guess at
run time; `understood` returns the part before it, since a check must not refuse what Conductor runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

EXPRESSION = re.compile(r"(?<!\$)\$\{([^{}]*)\}")
TASK_ID = "CPEWF_TASK_ID"
LENGTH = ("length()",)

_NESTED = re.compile(r"(?<!\$)\$\{[^{}]*\{")
_HEAD = re.compile(r"[^.\[\]()\s'\"*@$?]+")
_PART = re.compile(
    r"""\.(?P<length>length\(\))$
      | \.(?P<name>[^.\[\]()\s'"*@$?]+)
      | \[(?P<index>-?\d+)\]
      | \[(?P<quote>['"])(?P<key>[^'"]*)(?P=quote)\]""",
    re.VERBOSE,
)
_REFUSED_PREFIXES = ("workflow.secrets.", "workflow.env.")

Part = str | int | tuple[str]


def expressions_in(value: Any) -> Iterator[str]:
    """Yield every expression in a value, at any depth.  A nested expression is yielded whole, so that it is refused."""
    if isinstance(value, str):
        if _NESTED.search(value):
            yield value
        else:
            yield from (match[1] for match in EXPRESSION.finditer(value))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from expressions_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from expressions_in(item)


def source_of(expression: str) -> str | None:
    """Return the task reference that an expression reads from; None for `workflow` and the task id."""
    head = str(parse_path(expression)[0])
    return None if head in {"workflow", TASK_ID} else head


@lru_cache(maxsize=4096)
def parse_path(path: str) -> tuple[Part, ...]:
    """Return the parts of a path.  Raises `ValueError` if it is not of a supported form."""
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
    head = _HEAD.match(path)
    if head is None:
        return (), 0
    parts: list[Part] = [head[0]]
    at = head.end()
    while (match := _PART.match(path, at)) is not None:
        parts.append(_part(match))
        at = match.end()
    return tuple(parts), at


def _part(match: re.Match[str]) -> Part:
    if match["length"]:
        return LENGTH
    if match["index"]:
        return int(match["index"])
    return match["name"] if match["name"] is not None else match["key"]
