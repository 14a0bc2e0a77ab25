"""Which files this process opens, as the interpreter itself reports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Opens:
    """Hears of every file that Python opens; counts those below `folder` from when that is set."""

    def __init__(self) -> None:
        self._below: str | None = None
        self._files: list[str] = []
        # A hook cannot be taken away, so there is one for the whole run, which mostly does nothing.
        sys.addaudithook(self._hear)

    def start(self, folder: Path) -> None:
        """Count from now on."""
        self._below = f"{folder}{os.sep}"

    @contextmanager
    def heard(self) -> Iterator[list[str]]:
        """The names of files below the folder of `start`, which may be called before or within the block."""
        self._files.clear()
        try:
            yield self._files
        finally:
            self._below = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        below = self._below
        if below is not None and event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            if path.startswith(below):
                self._files.append(path.removeprefix(below))


OPENS = Opens()
