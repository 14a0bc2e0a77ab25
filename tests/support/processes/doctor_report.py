"""What `perago doctor` said, by part."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.support.processes.commands import Said, Shell


@dataclass(frozen=True, slots=True)
class Told:
    """The findings of one examination."""

    said: Said
    data: dict[str, Any]

    def at(self, part: str) -> list[dict[str, str]]:
        """The findings of a part."""
        return [finding for finding in self.data["findings"] if finding["part"] == part]

    def broken(self) -> list[str]:
        """The parts that are broken, in order."""
        return [finding["part"] for finding in self.data["findings"] if finding["level"] == "fail"]

    def has(self, part: str, level: str, says: str, remedy: str) -> None:
        """Whether one line says this, and what to do; the exit code must fit it."""
        fitting = [
            finding
            for finding in self.at(part)
            if finding["level"] == level and says in finding["says"] and remedy in finding["remedy"]
        ]
        assert len(fitting) == 1, f"not one {level} of {part!r}: {self.data['findings']}"
        assert remedy, "a line without a remedy helps nobody"
        assert self.said.code == (1 if self.broken() else 0)
        assert self.data["broken"] == bool(self.broken())


def examined(shell: Shell, *arguments: str) -> Told:
    """What the command finds, as a program would read it."""
    said = shell.look("doctor", *arguments, "--json")
    assert "Traceback" not in said.out + said.err
    assert said.err == "", "everything is in the answer"
    return Told(said, json.loads(said.out))
