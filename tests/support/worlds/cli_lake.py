"""A lake as a user of the command line sees it, embedded or real."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner, Result

from perago.cli import app
from perago.settings import LAKEFS_NAMES

HIDDEN = (*LAKEFS_NAMES, "CONDUCTOR_SERVER_URL", "PERAGO_ROOT")


@dataclass(frozen=True, slots=True)
class CommandLake:
    """A lake as the command line sees it: a repository, and the options of commands that write and that look."""

    repository: str
    writing: tuple[str, ...]
    looking: tuple[str, ...]

    def write(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, *self.writing])

    def written(self, *arguments: str) -> Any:
        done = self.write(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def run_here(self, *arguments: str) -> Any:
        done = CliRunner().invoke(app, [*arguments, "--json", *self.looking])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def files(self, ref: str = "main") -> list[str]:
        return [entry["path"] for entry in self.run_here("ls", f"{self.repository}@{ref}")]

    def refusal(self, *arguments: str) -> str:
        done = self.write(*arguments)
        assert done.exit_code == 1, done.output
        assert done.stderr.splitlines()[:-1] == [
            line for line in done.stderr.splitlines() if "lake: " in line
        ], done.stderr
        return done.stderr.splitlines()[-1]
