"""Commands that fail on a user error: one line names the error, its place and the remedy.

The rule: beside that line, stderr holds only lines that name what the command works on; no traceback, and no frame of
Perago.  The findings of `perago doctor` follow the same rule.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import perago
from tests.cli.conftest import HEAD
from tests.support.processes.commands import CommandResult, Shell
from tests.support.tasks.workflows import simple, workflow

SOURCE = str(Path(perago.__file__).parent)
NAMING = (
    "lake: ",
    "Conductor: ",
    "lakeFS: ",
    "orchestrator: ",
    "embedded servers: ",
    "lakeFS (LAKECTL_*)",
    "run ",
)
"""Beginnings of lines that name servers, lakes and runs."""
USAGE = 2
_TASKS = """
@task(name="count", owner_email="a@b.c", controls=TaskControls(retry=RetryPolicy(count=0)))
def count(params: Params) -> Result:
    return Result(rows=1)
"""
NOBODY = "http://127.0.0.1:9"
"""An address where nothing listens."""
KEYS = {
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "a-secret-1",
}
LAKEFS = {"LAKECTL_SERVER_ENDPOINT_URL": NOBODY, **KEYS}
CONDUCTOR = {"CONDUCTOR_SERVER_URL": f"{NOBODY}/api"}


@dataclass(frozen=True, slots=True)
class CommandError:
    """A command that fails, and what its one line must contain; `{folder}` stands for its folder."""

    command: tuple[str, ...]
    where: str
    what: str
    remedy: str
    environ: dict[str, str] = field(default_factory=dict)
    code: int = 1
    level: str = "error"


def check_reported(error: CommandError, said: CommandResult, folder: Path) -> None:
    """Check the exit code, and that the one line has place, error and remedy."""
    assert said.code == error.code, said.out + said.err
    line = error_line(said, error.level)
    for part in (error.where, error.what, error.remedy):
        assert part, "an error needs a place and a remedy"
        assert part.replace("{folder}", str(folder)) in line


def error_line(said: CommandResult, level: str = "error") -> str:
    """Return the one line about the error; the command must print nothing else that needs reading."""
    assert "Traceback" not in said.out + said.err
    assert f'File "{SOURCE}' not in said.out + said.err, "no frame of ours"
    others = [line for line in said.err.splitlines() if not line.startswith(NAMING)]
    if level == "error":
        others = [line for line in others if not line.startswith("warning: ")]
    [line] = [line for line in others if not line.startswith("no runs ")]
    assert line.startswith(f"{level}: ")
    return line


def shell_with_a_workflow(folder: Path) -> Shell:
    """Return a shell in a folder with a task, a workflow of one step, and some data; nothing is configured."""
    (folder / "tasks.py").write_text(HEAD + _TASKS)
    flow = workflow(simple("one", name="count", inputParameters={"params": {"stem": "x"}}))
    (folder / "flow.json").write_text(json.dumps(flow))
    (folder / "broken.yaml").write_text("server:\n  endpoint_url: [x\n")
    (folder / "data").mkdir()
    (folder / "data" / "a.csv").write_text("x\n")
    shell = Shell(folder)
    # Whoever runs the tests may have a lakectl file.
    shell.environ["HOME"] = str(folder)
    return shell


# --- perago doctor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The findings of one `perago doctor`."""

    said: CommandResult
    data: dict[str, Any]

    def at(self, part: str) -> list[dict[str, str]]:
        """Return the findings of a part."""
        return [finding for finding in self.data["findings"] if finding["part"] == part]

    def broken(self) -> list[str]:
        """Return the broken parts, in order."""
        return [finding["part"] for finding in self.data["findings"] if finding["level"] == "fail"]

    def has(self, part: str, level: str, says: str, remedy: str) -> None:
        """Check that exactly one finding has this text and remedy, and that the exit code agrees."""
        fitting = [
            finding
            for finding in self.at(part)
            if finding["level"] == level and says in finding["says"] and remedy in finding["remedy"]
        ]
        assert len(fitting) == 1, f"not one {level} of {part!r}: {self.data['findings']}"
        assert remedy, "every finding needs a remedy"
        assert self.said.code == (1 if self.broken() else 0)
        assert self.data["broken"] == bool(self.broken())


def examine_by_doctor(shell: Shell, *arguments: str) -> DoctorReport:
    """Run `perago doctor --json`, and return its findings."""
    said = shell.run_here("doctor", *arguments, "--json")
    assert "Traceback" not in said.out + said.err
    assert said.err == "", "all output is in the JSON"
    return DoctorReport(said, json.loads(said.out))
