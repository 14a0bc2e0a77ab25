"""docs/troubleshooting.md quotes messages of the sources: the text between `…` is found there word for word."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import perago
from tests.support.docs.sources import parsed

SRC = Path(perago.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
ROWS = re.findall(r"^\| `(.+?)`(?: \([^|]*\))? \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
MESSAGES = [message for message, _, _ in ROWS]


@cache
def texts() -> str:
    """Every text of the sources but their docstrings; what is put into one at run time is `…`."""
    found = []
    for source in SRC.rglob("*.py"):
        nodes = list(ast.walk(parsed(source)))
        skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        skipped |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if id(node) not in skipped and (text := said(node)):
                found.append(re.sub(r"%[.\d]*[sdf]", "…", text))
    return "\n".join(found)


def said(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
    return ""


def fixed_parts(message: str) -> list[str]:
    return [part.strip() for part in message.split("…") if len(part.strip()) > 3]


def test_the_messages_that_people_meet_first_are_there() -> None:
    assert len(set(MESSAGES)) == len(MESSAGES) >= 45


def test_every_row_is_read() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]

    assert len(rows) == len(ROWS)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_that_perago_prints(message: str) -> None:
    parts = fixed_parts(message)

    assert parts, "nothing of it is fixed"
    assert [part for part in parts if part not in texts()] == []


def test_a_message_that_nobody_prints_is_found_out() -> None:
    assert [part for part in fixed_parts("the lake is on fire: …") if part not in texts()]
