"""Runs a parsed script, following JavaScript's rules for the supported operators.

Values are JSON values and `undefined`.  A JavaScript exception becomes a `ScriptError` with the same text as in
Conductor's JavaScript engine, because Conductor puts that text into the task's reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perago.orchestrator.local.expressions import java_text
from perago.orchestrator.local.js_parser import (
    UNDEFINED,
    Binary,
    Block,
    Call,
    Choice,
    Literal,
    Member,
    Node,
    Return,
    Root,
    Unary,
    Undefined,
    parse_script,
)


class ScriptError(Exception):
    """Raised if the script fails while running."""

    def __init__(self, text: str) -> None:
        super().__init__(f"Error evaluating the script `{text}` at line 1")


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


def run_script(text: str, root: Mapping[str, Any]) -> Any:
    """Run a script and return its value as Conductor stores it: undefined as null, whole numbers as integers."""
    value = _run(parse_script(text), root)
    if isinstance(value, Undefined):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


def as_condition(value: Any) -> bool:
    """Return whether Conductor considers a value true: `true`, or a number above zero.  JavaScript's rule differs."""
    return value is True or (_is_number(value) and value > 0)


def _run(node: Node, root: Mapping[str, Any]) -> Any:
    match node:
        case Literal(value):
            return value
        case Root():
            return root
        case Member(target, key):
            return _member(_run(target, root), _run(key, root))
        case Unary(operator, operand):
            return _unary(operator, _run(operand, root))
        case Binary(operator, left, right):
            return _binary(operator, left, right, root)
        case Choice(condition, yes, no):
            if _truth(_run(condition, root)):
                return _run(yes, root)
            return UNDEFINED if no is None else _run(no, root)
        case Block(statements):
            value = UNDEFINED
            for statement in statements:
                value = _run(statement, root)
            return value
        case Return(value):
            raise _Returned(_run(value, root))
        case Call(body):
            try:
                _run(body, root)
            except _Returned as returned:
                return returned.value
            return UNDEFINED


def _member(target: Any, key: Any) -> Any:
    if target is None or target is UNDEFINED:
        raise ScriptError(f"TypeError: Cannot read property '{_text(key)}' of {_text(target)}")
    if isinstance(target, Mapping):
        return target.get(_text(key), UNDEFINED)
    if isinstance(target, list | str):
        if key == "length":
            return len(target)
        if _is_number(key) and float(key).is_integer() and 0 <= key < len(target):
            return target[int(key)]
    return UNDEFINED


def _unary(operator: str, value: Any) -> Any:
    if operator == "!":
        return not _truth(value)
    return -_number(value) if operator == "-" else _number(value)


def _binary(operator: str, left: Node, right: Node, root: Mapping[str, Any]) -> Any:
    a = _run(left, root)
    if operator == "&&":
        return _run(right, root) if _truth(a) else a
    if operator == "||":
        return a if _truth(a) else _run(right, root)
    if operator == "??":
        return _run(right, root) if a is None or a is UNDEFINED else a
    b = _run(right, root)
    match operator:
        case "===":
            return _same(a, b)
        case "!==":
            return not _same(a, b)
        case "==":
            return _equal(a, b)
        case "!=":
            return not _equal(a, b)
        case "<" | "<=" | ">" | ">=":
            return _compare(operator, a, b)
        case "+" if isinstance(a, str) or isinstance(b, str):
            return _text(a) + _text(b)
        case _:
            return _arithmetic(operator, _number(a), _number(b))


def _arithmetic(operator: str, a: float, b: float) -> float:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/" if b:
            return a / b
        case "/":
            return math.nan if a == 0 or a != a else math.copysign(math.inf, a)
        case _:
            return math.fmod(a, b) if b and math.isfinite(a) else math.nan


def _compare(operator: str, a: Any, b: Any) -> bool:
    if not (isinstance(a, str) and isinstance(b, str)):
        a, b = _number(a), _number(b)
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator])


def _same(a: Any, b: Any) -> bool:
    if _is_number(a) and _is_number(b):
        return bool(a == b)
    if isinstance(a, Mapping | list) or isinstance(b, Mapping | list):
        return a is b
    return type(a) is type(b) and bool(a == b)


def _equal(a: Any, b: Any) -> bool:
    nothing = (None, UNDEFINED)
    if a in nothing or b in nothing:
        return a in nothing and b in nothing
    primitive = (str, bool, int, float)
    if type(a) is not type(b) and isinstance(a, primitive) and isinstance(b, primitive):
        return bool(_number(a) == _number(b))
    return _same(a, b)


def _truth(value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return True
    if isinstance(value, float) and math.isnan(value):
        return False
    return value is not UNDEFINED and bool(value)


def _number(value: Any) -> float:
    match value:
        case None:
            return 0
        case bool():
            return int(value)
        case int() | float():
            return value
        case str():
            try:
                return float(value) if value.strip() else 0
            except ValueError:
                return math.nan
        case _:
            return math.nan


def _text(value: Any) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    return "undefined" if value is UNDEFINED else java_text(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
