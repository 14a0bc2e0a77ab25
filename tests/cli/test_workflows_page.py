"""docs/workflows.md is true: its workflow in Python is written beside the example's tasks, checked and run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.commands import Shell

ROOT = Path(__file__).parents[2]
PART = (ROOT / "docs" / "workflows.md").read_text().partition("## In Python")[2].partition("\n## ")[0]


@pytest.mark.slow
def test_the_workflow_in_python_is_checked_and_run_as_the_page_says(tmp_path: Path) -> None:
    [source] = re.findall(r"```python\n(.*?)```", PART, re.DOTALL)
    [command] = re.findall(r"^\$ perago (.*)$", PART, re.MULTILINE)
    (tmp_path / "flows.py").write_text(source)
    shutil.copy(ROOT / "examples" / "plain" / "tasks.py", tmp_path)
    shutil.copytree(ROOT / "examples" / "plain" / "data", tmp_path / "data")
    shell = Shell(tmp_path)

    checked = shell.run("check", "tasks.py", "flows.py:plays")
    ran = shell.run(*shlex.split(command), "--json")

    assert (checked.code, checked.err) == (0, "")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["output"]["kept"] == 8
    statuses = {one["reference"]: one["status"] for one in json.loads(ran.out)["tasks"]}
    assert {statuses[name] for name in ("clean", "count", "audit")} == {"COMPLETED"}
