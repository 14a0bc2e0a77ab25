"""Nothing that users can type is left to be found by chance: every exported name and every option is in some page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType

import pytest
import typer
from typer.main import get_command

import perago
import perago.testing
import perago.workflow
from perago.cli import app
from tests.support.docs.pages import ROOT

PAGES = {page.name: page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}
SECTIONS = [
    section
    for name, page in PAGES.items()
    if name.startswith("commands-")
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]
]


def mentions(text: str, word: str) -> bool:
    """Return whether the text has the whole word, not only as a part of another."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def parameters(command: typer.core.TyperCommand, name: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every option of a command and of those below it: the command's name, and the option's spellings."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.name != "help":
            yield name, (*parameter.opts, *parameter.secondary_opts)
    for word, below in getattr(command, "commands", {}).items():
        yield from parameters(below, f"{name} {word}".strip())


OPTIONS = sorted(set(parameters(get_command(app))))


@pytest.mark.parametrize(
    "module", [perago, perago.testing, perago.workflow], ids=lambda module: module.__name__
)
def test_every_exported_name_is_in_some_page(module: ModuleType) -> None:
    text = "\n".join(PAGES.values())

    assert [name for name in module.__all__ if not mentions(text, name)] == []


@pytest.mark.parametrize(
    ("command", "spellings"), OPTIONS, ids=lambda one: one if isinstance(one, str) else one[0]
)
def test_every_option_is_in_a_section_about_its_command(command: str, spellings: tuple[str, ...]) -> None:
    # A section is about a command that its heading, or the first cell of a row, is; groups have one section for all.
    about = [
        text
        for text in SECTIONS
        if re.search(rf"^(?:\| )?`perago {command.partition(' ')[0]}\b", text, re.MULTILINE)
    ]
    text = "\n".join(about) if command else PAGES["commands.md"]

    assert any(mentions(text, spelling) for spelling in spellings), f"perago {command} {' '.join(spellings)}"
