"""What people get wrong, as commands: each is told in one line that names what and where, and says what to do.

The rule: beside that line stderr holds only lines that say what the command works on; nothing of it is a traceback, and no
frame of ours is in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import perago
from tests.cli.conftest import HEAD
from tests.support.processes.commands import Said, Shell
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
"""How lines begin that name servers, lakes and runs."""
USAGE = 2
_TASKS = """
@task(name="count", owner_email="a@b.c", controls=TaskControls(retry=RetryPolicy(count=0)))
def count(params: Params) -> Result:
    return Result(rows=1)
"""
NOBODY = "http://127.0.0.1:9"
"""Where nothing listens."""
KEYS = {
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "a-secret-1",
}
LAKEFS = {"LAKECTL_SERVER_ENDPOINT_URL": NOBODY, **KEYS}
CONDUCTOR = {"CONDUCTOR_SERVER_URL": f"{NOBODY}/api"}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command that is wrong, or meets what is wrong, and what its one line must say; `{folder}` is where it is given."""

    command: tuple[str, ...]
    where: str
    what: str
    remedy: str
    environ: dict[str, str] = field(default_factory=dict)
    code: int = 1
    level: str = "error"


def is_told(mistake: Mistake, said: Said, folder: Path) -> None:
    """Whether the one line says it all."""
    assert said.code == mistake.code, said.out + said.err
    line = the_line(said, mistake.level)
    for part in (mistake.where, mistake.what, mistake.remedy):
        assert part, "a mistake without a place or a remedy is not told"
        assert part.replace("{folder}", str(folder)) in line


def the_line(said: Said, level: str = "error") -> str:
    """The one line about the mistake, of a command that says nothing else that would need reading."""
    assert "Traceback" not in said.out + said.err
    assert f'File "{SOURCE}' not in said.out + said.err, "no frame of ours"
    others = [line for line in said.err.splitlines() if not line.startswith(NAMING)]
    if level == "error":
        others = [line for line in others if not line.startswith("warning: ")]
    [line] = [line for line in others if not line.startswith("no runs ")]
    assert line.startswith(f"{level}: ")
    return line


def shell_with_a_workflow(folder: Path) -> Shell:
    """A shell in a folder with a task, a workflow of one step, and some data; nothing is configured."""
    (folder / "tasks.py").write_text(HEAD + _TASKS)
    flow = workflow(simple("one", name="count", inputParameters={"params": {"stem": "x"}}))
    (folder / "flow.json").write_text(json.dumps(flow))
    (folder / "broken.yaml").write_text("server:\n  endpoint_url: [x\n")
    (folder / "data").mkdir()
    (folder / "data" / "a.csv").write_text("x\n")
    shell = Shell(folder)
    # The person who runs the tests may have a file of lakectl's.
    shell.environ["HOME"] = str(folder)
    return shell
