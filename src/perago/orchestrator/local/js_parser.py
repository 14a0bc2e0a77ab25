"""Parses the supported subset of JavaScript, for loop conditions and SWITCH expressions.

    $.loop['iteration'] < $.limit && !$.check.done
    if ($.loop.iteration < 3) { true; } else { false; }
    (function () { if ($.n > 3) { return 'big'; } return 'small'; })()

Supported: literals, `$`, members, arithmetic, comparison, logic, `?:`, `if`/`else`, and an immediately invoked
function.  `$` is the only name, so a script cannot access anything but its input.  Any other syntax raises
`UnsupportedScript`, which names the token and its line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


class UnsupportedScript(ValueError):
    """Raised if a script is outside the supported subset of JavaScript."""


class Undefined:
    """The JavaScript value `undefined`."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = Undefined()


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class Root:
    """`$`, the script's input."""


@dataclass(frozen=True, slots=True)
class Member:
    target: Node
    key: Node


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Choice:
    """`condition ? yes : no`, or an `if` with an optional `else`."""

    condition: Node
    yes: Node
    no: Node | None


@dataclass(frozen=True, slots=True)
class Block:
    """A sequence of statements.  Its value is that of the last statement."""

    statements: Sequence[Node]


@dataclass(frozen=True, slots=True)
class Return:
    value: Node


@dataclass(frozen=True, slots=True)
class Call:
    """An immediately invoked function."""

    body: Block


Node = Literal | Root | Member | Unary | Binary | Choice | Block | Return | Call

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?)
      | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<name>[A-Za-z_$][\w$]*)
      | (?P<mark>===|!==|==|!=|<=|>=|&&|\|\||\?\?|=>|\+\+|--|[-+*/%<>!?:;,.(){}\[\]=&|^~])""",
    re.VERBOSE | re.DOTALL,
)
_LITERALS = {"true": True, "false": False, "null": None, "undefined": UNDEFINED}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
# Binary operators from the loosest binding to the tightest.  All are left-associative.
_LEVELS: Sequence[frozenset[str]] = (
    frozenset({"||", "??"}),
    frozenset({"&&"}),
    frozenset({"==", "!=", "===", "!=="}),
    frozenset({"<", "<=", ">", ">="}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


@lru_cache(maxsize=256)
def parse_script(text: str) -> Block:
    """Parse a script into a syntax tree.  Raises `UnsupportedScript` if it is outside the supported subset."""
    parser = _Parser(_tokens(text))
    program = parser.block_until("")
    if not program.statements:
        raise UnsupportedScript("it is empty")
    return program


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnsupportedScript(f"line {line}: {text[at]!r} is not understood")
        kind = str(match.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    tokens.append(_Token("end", "", line))
    return tokens


class _Parser:
    """A recursive-descent parser for the tokens of one script."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._in_function = 0

    def block_until(self, closing: str) -> Block:
        """Parse statements up to and including `closing`, or to the end of the script if `closing` is empty."""
        statements: list[Node] = []
        while self._next.text != closing or (not closing and self._next.kind != "end"):
            if not self._take(";"):
                statements.append(self._statement())
        self._at += 1
        return Block(tuple(statements))

    def _statement(self) -> Node:
        if self._take("if"):
            self._expect("(")
            condition = self._expression()
            self._expect(")")
            yes = self._statement()
            self._take(";")
            return Choice(condition, yes, self._statement() if self._take("else") else None)
        if self._take("{"):
            return self.block_until("}")
        if self._next.text == "return" and self._in_function:
            self._at += 1
            bare = self._next.text in {";", "}"}
            value: Node = Return(Literal(UNDEFINED) if bare else self._expression())
        else:
            value = self._expression()
        self._end_of_statement()
        return value

    def _end_of_statement(self) -> None:
        on_a_new_line = self._next.line > self._tokens[self._at - 1].line
        if not (self._take(";") or self._next.text == "}" or self._next.kind == "end" or on_a_new_line):
            raise self._unexpected()

    def _expression(self, level: int = 0) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._expression(level + 1)
        while self._next.kind == "mark" and self._next.text in _LEVELS[level]:
            operator = self._next.text
            self._at += 1
            left = Binary(operator, left, self._expression(level + 1))
        if level == 0 and self._take("?"):
            yes = self._expression()
            self._expect(":")
            return Choice(left, yes, self._expression())
        return left

    def _unary(self) -> Node:
        for operator in ("!", "-", "+"):
            if self._take(operator):
                return Unary(operator, self._unary())
        node = self._primary()
        while True:
            if self._take("."):
                if self._next.kind != "name":
                    raise self._unexpected()
                node = Member(node, Literal(self._next.text))
                self._at += 1
            elif self._take("["):
                node = Member(node, self._expression())
                self._expect("]")
            else:
                return node

    def _primary(self) -> Node:
        token = self._next
        self._at += 1
        if token.kind == "number":
            return Literal(float(token.text) if re.search(r"[.eE]", token.text) else int(token.text))
        if token.kind == "string":
            return Literal(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), token.text[1:-1]))
        if token.text == "$":
            return Root()
        if token.kind == "name" and token.text in _LITERALS:
            return Literal(_LITERALS[token.text])
        if token.text == "(" and self._next.text == "function":
            return self._call()
        if token.text == "(":
            inner = self._expression()
            self._expect(")")
            return inner
        self._at -= 1
        raise self._unexpected()

    def _call(self) -> Node:
        self._expect("function")
        if self._next.kind == "name":
            self._at += 1
        for text in ("(", ")", "{"):
            self._expect(text)
        self._in_function += 1
        body = self.block_until("}")
        self._in_function -= 1
        for text in (")", "(", ")"):
            self._expect(text)
        return Call(body)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, text: str) -> bool:
        if self._next.text != text or self._next.kind in {"string", "end"}:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f", expected {text!r}")

    def _unexpected(self, hint: str = "") -> UnsupportedScript:
        token = self._next
        what = "it ends too early" if token.kind == "end" else f"{token.text!r} is not understood here"
        return UnsupportedScript(f"line {token.line}: {what}{hint}")
