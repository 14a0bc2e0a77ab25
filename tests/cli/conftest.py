"""Task modules for the commands, in a current folder of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

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
