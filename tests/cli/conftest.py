"""Task modules for the commands, in a current folder of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.worlds.cli_lake import HIDDEN, CommandLake

HEAD = """
from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from perago import *


class Params(BaseModel):
    stem: str


class Result(BaseModel):
    rows: int
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Write a task module and give its target."""
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)

    def write(name: str, source: str) -> str:
        (tmp_path / name).write_text(HEAD + dedent(source))
        return name

    yield write
    sys.path[:] = path


@pytest.fixture(params=["embedded", pytest.param("lakefs", marks=pytest.mark.servers)])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLake:
    monkeypatch.chdir(tmp_path)
    if request.param == "lakefs":
        name = request.getfixturevalue("lakefs_repository")
        monkeypatch.setenv("PERAGO_ROOT", str(tmp_path / "root"))
        return CommandLake(name, ("--remote", "--yes"), ("--remote",))
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "readme").write_text("first")
    root = ("--root", str(tmp_path / "root"))
    made = CommandLake("songs", root, root)
    assert made.write("put", "songs", "first", "--create").exit_code == 0
    assert made.written("put", "songs", "first")["changed"] is False
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., str]:
    def make(**files: str) -> str:
        for path, text in files.items():
            file = tmp_path / "in" / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "in").mkdir(exist_ok=True)
        return "in"

    return make
