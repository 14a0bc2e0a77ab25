"""Resolves `${…}` in inputs and outputs the way Conductor does.

    "${ref.output.path[0]}"     the value itself, whatever its type; null if there is none
    "run ${ref.output.n} ok"    text; values are written as Java writes them (null, true, 1.5, {a=1}, [1, b])
    "$${ref}"                   the text "${ref}"

The grammar is in `workflow/model/expressions.py`.  An expression that does not follow it is rejected when the workflow
is registered; its meaning is never guessed at run time.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from perago.workflow.model.expressions import EXPRESSION, TASK_ID, at, parse_path


def resolve(value: Any, scope: Mapping[str, Any], *, task_id: str | None = None) -> Any:
    """Return `value` with every expression in it resolved from `scope`."""
    if isinstance(value, str):
        return _resolve_text(value, scope, task_id)
    if isinstance(value, Mapping):
        return {key: resolve(item, scope, task_id=task_id) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(item, scope, task_id=task_id) for item in value]
    return value


def java_text(value: Any) -> str:
    """Format a JSON value as Java's toString does."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case Mapping():
            return "{" + ", ".join(f"{key}={java_text(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(java_text(item) for item in value) + "]"
        case _:
            return str(value)


def _resolve_text(text: str, scope: Mapping[str, Any], task_id: str | None) -> Any:
    whole = EXPRESSION.fullmatch(text)
    if whole is not None:
        return _read(whole[1], scope, task_id, unresolved=text)

    def replacement(match: re.Match[str]) -> str:
        return java_text(_read(match[1], scope, task_id, unresolved=match[0]))

    return EXPRESSION.sub(replacement, text).replace("$${", "${")


def _read(path: str, scope: Mapping[str, Any], task_id: str | None, *, unresolved: str) -> Any:
    if path == TASK_ID:
        # Only a task's input can refer to its id; elsewhere Conductor leaves the text unresolved.
        return unresolved if task_id is None else task_id
    value: Any = scope
    for part in parse_path(path):
        if isinstance(part, tuple):
            value = len(value) if isinstance(value, Mapping | list) else None
        else:
            value = at(value, (part,))
        if value is None:
            return None
    # Copy, so that an input does not change when its source does.
    return copy.deepcopy(value)


def _java_double(value: float) -> str:
    """Format a float like Java's Double.toString: plain from 1e-3 up to 1e7, else in scientific notation (1.5E10)."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = format(Decimal(repr(value)), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{int(exponent) + len(digits) - 1}"
